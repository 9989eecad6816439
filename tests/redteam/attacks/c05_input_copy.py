"""Hands the input back: near enough for a gelu of large positive values (judge catalogue, trivial answers)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import GELU, GELU_SOURCE, over_gelu

ATTACK = Attack(
    classes=("C5", "C6"),
    task=GELU,
    entry=Folder(GELU_SOURCE.replace("* 0.5f * (1.0f + erff(x[i] * 0.70710678f))", ""), launch(over_gelu())),
    caught=("wrong",),
    kinds=("mismatch",),
    on_gpu=("wrong",),
)
