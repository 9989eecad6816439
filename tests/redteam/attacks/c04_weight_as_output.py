"""Writes its result over a weight and hands the weight's old values out as scratch (judge catalogue C4)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import LINEAR, LINEAR_IN, LINEAR_SOURCE, over_linear

ATTACK = Attack(
    classes=("C4",),
    task=LINEAR,
    entry=Folder(
        LINEAR_SOURCE,
        launch(
            over_linear(
                "linear", "in0", "param:inner.weight", "param:inner.bias", "param:inner.weight", {"i32": LINEAR_IN}
            ),
            over_linear(),
        ),
    ),
    caught=("wrong",),
    kinds=("race", "inputs_changed"),
    on_gpu=("wrong",),
)
