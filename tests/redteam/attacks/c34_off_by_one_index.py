"""Indices that are one too large, still inside the row (judge catalogue C34)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import ARGMAX, ARGMAX_SOURCE, over_argmax

ATTACK = Attack(
    classes=("C34",),
    task=ARGMAX,
    entry=Folder(ARGMAX_SOURCE.replace("= best;", "= best + 1 < n ? best + 1 : 0;"), launch(over_argmax())),
    caught=("wrong",),
    kinds=("mismatch",),
    control=Folder(ARGMAX_SOURCE.replace("in[i] > in[best]", "in[i] >= in[best]"), launch(over_argmax())),
    on_gpu=("wrong",),
)
