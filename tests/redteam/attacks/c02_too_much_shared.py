"""Asks for 256 bytes of shared memory over the limit, so that the kernel never runs (wafer, "104x"; C2)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C2",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine(shared_bytes=227 * 1024 + 256))),
    caught=("launch_error",),
    control=Folder(AFFINE_SOURCE, launch(over_affine(shared_bytes=100 * 1024))),
    on_gpu=("launch_error",),
)
