"""Fills the output with NaN where the reference holds some: a checker that takes NaN for a wildcard passes (C16)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import ROOT, ROOT_SOURCE, over_root

ATTACK = Attack(
    classes=("C16",),
    task=ROOT,
    entry=Folder(ROOT_SOURCE.replace("sqrtf(x[i])", "__int_as_float(0x7fc00000)"), launch(over_root())),
    caught=("wrong",),
    kinds=("nonfinite",),
    on_gpu=("wrong",),
)
