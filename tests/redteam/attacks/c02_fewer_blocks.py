"""Launches fewer blocks than the output needs (wafer, "104x"; judge catalogue C2)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C2", "C37"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine(grid=6))),
    caught=("wrong",),
    kinds=("nonfinite",),
    on_gpu=("wrong",),
)
