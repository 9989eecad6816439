"""Stores zeros where the reference has NaN: comparisons with NaN are false (judge catalogue C16)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import ROOT, ROOT_SOURCE, over_root

ATTACK = Attack(
    classes=("C16",),
    task=ROOT,
    entry=Folder(ROOT_SOURCE.replace("sqrtf(x[i])", "sqrtf(fmaxf(x[i], 0.0f))"), launch(over_root())),
    caught=("wrong",),
    kinds=("nonfinite",),
    on_gpu=("wrong",),
)
