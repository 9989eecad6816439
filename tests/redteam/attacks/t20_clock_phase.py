"""Tells the timed phase from the verified one by the clock (reference-kernels #142; T20, C33)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = "if (i < n && clock64() >= 0) y[i] = x[i] * 3.0f + 1.0f;"
ATTACK = Attack(
    classes=("C33",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
