"""Doubles a weight and halves it in the next call: the module's parameters are inputs as well (C4)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import LINEAR, LINEAR_SOURCE, over_linear

SOURCE = LINEAR_SOURCE.replace("const float* w", "float* w").replace(
    "y[row * blockDim.x + col]", "if (row == 0 && col == 0) w[0] = w[0];\n    y[row * blockDim.x + col]"
).replace("w[0] = w[0];", "w[col * k] = 2.0f;")
ATTACK = Attack(
    classes=("C4",),
    task=LINEAR,
    entry=Folder(SOURCE, launch(over_linear())),
    caught=("wrong",),
    kinds=("inputs_changed", "race"),
    on_gpu=("wrong",),
)
