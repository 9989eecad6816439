"""Reads far beyond its input, where references or other inputs may lie (judge section 1.4; C39)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

ATTACK = Attack(
    classes=("C17", "C39"),
    task=AFFINE,
    entry=Folder(affine("if (i < n) y[i] = x[i + (1 << 16)] * 3.0f + 1.0f;"), launch(over_affine())),
    caught=("crashed",),
    kinds=("out_of_bounds",),
    on_gpu=("wrong", "crashed"),
)
