"""The grid's running number says how many launches came before: a call counter without memory (C33)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """unsigned long long number;
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(number));
    if (i < n && number < 100000) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C33", "C36"),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
