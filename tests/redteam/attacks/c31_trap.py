"""Ends the context with a trap when the result would be wrong: a crash is no verdict in its favour (C1)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i < n) y[i] = x[i] * 3.0f + 1.0f;
    if (i == 5) __trap();"""
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("crashed", "rejected"),
    on_gpu=("crashed", "rejected"),
)
