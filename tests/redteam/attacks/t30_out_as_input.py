"""Hands the output in as the input and the input as the output (judge catalogue T30, C4)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_N, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("T30", "C4"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine("affine", "out0", "in0", {"i32": AFFINE_N}))),
    caught=("wrong",),
    on_gpu=("wrong",),
)
