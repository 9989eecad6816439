"""Works only on some multiprocessors, which a small verification never reaches (judge catalogue C33)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (i < n && sm < 132) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C33",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected", "not_measured"),
    on_gpu=("rejected",),
)
