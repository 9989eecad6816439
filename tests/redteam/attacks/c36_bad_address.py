"""Writes through a wild pointer: the context is lost, which the next candidate must not see (KernelBench #92, #164)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = "if (i < n) y[i] = x[i]; if (i == 0) *(volatile float*)0x10ull = 1.0f;"
ATTACK = Attack(
    classes=("C36",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("crashed",),
    on_gpu=("crashed",),
)
