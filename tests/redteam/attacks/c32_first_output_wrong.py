"""The first of two outputs is wrong, the last is right (gpu-mode/reference-kernels #104; C32)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import PAIR, PAIR_SOURCE, over_pair

ATTACK = Attack(
    classes=("C32",),
    task=PAIR,
    entry=Folder(PAIR_SOURCE.replace("+ i] = v;", "+ i] = v + 1.0f;"), launch(over_pair())),
    caught=("wrong",),
    kinds=("mismatch",),
    says="out0",
    on_gpu=("wrong",),
)
