"""A first launch that computes everything, then one that the driver refuses: the status of each step counts (C2)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C2",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine(), over_affine(block=2048))),
    caught=("launch_error",),
    control=Folder(AFFINE_SOURCE, launch(over_affine(), over_affine())),
    on_gpu=("launch_error",),
)
