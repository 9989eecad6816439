"""Hands a smaller size to its kernel, so that half of the work is done (judge catalogue T30)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_N, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("T30", "C37"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine("affine", "in0", "out0", {"i32": AFFINE_N // 2}))),
    caught=("wrong",),
    kinds=("nonfinite",),
    on_gpu=("wrong",),
)
