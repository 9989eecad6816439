"""Includes the environment of the compiler process, where keys would lie (judge section 1.4; C22)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C22",),
    task=AFFINE,
    entry=Folder('#include "/proc/self/environ"\n' + AFFINE_SOURCE, launch(over_affine())),
    caught=("compile_error", "rejected"),
    says="^(?!.*PATH=)",
    on_gpu=("compile_error", "rejected"),
)
