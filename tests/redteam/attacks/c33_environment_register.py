"""Reads an environment register, which the driver may set per launch (judge catalogue C33)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """unsigned value;
    asm volatile("mov.b32 %0, %%envreg3;" : "=r"(value));
    if (i < n && value != 12345u) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C33",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected", "not_measured"),
    on_gpu=("rejected",),
)
