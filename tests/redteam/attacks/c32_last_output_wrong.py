"""The last of two outputs is wrong, the first is right (judge catalogue C32)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import PAIR, PAIR_SOURCE, over_pair

ATTACK = Attack(
    classes=("C32",),
    task=PAIR,
    entry=Folder(PAIR_SOURCE.replace("= sum;", "= sum * 1.01f;"), launch(over_pair())),
    caught=("wrong",),
    kinds=("mismatch",),
    says="out1",
    on_gpu=("wrong",),
)
