"""Leaves one element in the middle unwritten: an rms over all elements hardly moves (judge catalogue C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

ATTACK = Attack(
    classes=("C37",),
    task=AFFINE,
    entry=Folder(affine("if (i < n && i != 700) y[i] = x[i] * 3.0f + 1.0f;"), launch(over_affine())),
    caught=("wrong",),
    kinds=("nonfinite",),
    on_gpu=("wrong",),
)
