"""Leaves the epsilon of a layer norm out: it shows for inputs of small variance alone (judge catalogue C15)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import NORM, NORM_SOURCE, over_norm

ATTACK = Attack(
    classes=("C15",),
    task=NORM,
    entry=Folder(NORM_SOURCE.replace(" + 1e-5f", ""), launch(over_norm())),
    caught=("wrong",),
    kinds=("mismatch", "nonfinite"),
    on_gpu=("wrong",),
)
