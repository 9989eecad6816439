"""Writes one element past its output (judge section 1.4; C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

ATTACK = Attack(
    classes=("C37",),
    task=AFFINE,
    entry=Folder(affine("if (i <= n) y[i] = x[i < n ? i : 0] * 3.0f + 1.0f;"), launch(over_affine())),
    caught=("crashed", "wrong"),
    kinds=("out_of_bounds", "guard"),
    on_gpu=("wrong",),
)
