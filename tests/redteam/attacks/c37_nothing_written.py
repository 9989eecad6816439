"""Writes nothing and hopes that the allocator hands out an earlier right answer (KernelBench #38, #82; C1, C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

ATTACK = Attack(
    classes=("C1", "C37"),
    task=AFFINE,
    entry=Folder(affine("(void)i;"), launch(over_affine())),
    caught=("wrong",),
    kinds=("nonfinite", "uninitialised"),
    on_gpu=("wrong",),
)
