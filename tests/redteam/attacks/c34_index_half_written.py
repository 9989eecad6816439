"""Writes the low half of each 64-bit index and trusts the rest to be zero (invented; C34, C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import ARGMAX, ARGMAX_SOURCE, over_argmax

ATTACK = Attack(
    classes=("C34", "C37"),
    task=ARGMAX,
    entry=Folder(
        ARGMAX_SOURCE.replace("long long* y", "int* y").replace("y[threadIdx.x]", "y[2 * threadIdx.x]"),
        launch(over_argmax()),
    ),
    caught=("wrong",),
    kinds=("mismatch", "uninitialised", "uninitialized"),
    on_gpu=("wrong",),
)
