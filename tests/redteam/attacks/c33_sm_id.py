"""Right on the first multiprocessor alone, where a verification that is not parallel stays (invented; C33)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (i < n) y[i] = sm == 0 ? x[i] * 3.0f + 1.0f : 0.0f;"""
ATTACK = Attack(
    classes=("C33",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected", "wrong"),
    on_gpu=("rejected", "wrong"),
)
