"""Right for blocks of 128 alone, launched with 96: geometry that the source takes for granted (C14)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

SOURCE = AFFINE_SOURCE.replace("blockDim.x", "128")
ATTACK = Attack(
    classes=("C14",),
    task=AFFINE,
    entry=Folder(SOURCE, launch(over_affine(block=96, grid=16))),
    caught=("wrong",),
    kinds=("nonfinite",),
    control=Folder(SOURCE, launch(over_affine())),
    on_gpu=("wrong",),
)
