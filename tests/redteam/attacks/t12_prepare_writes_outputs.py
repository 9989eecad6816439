"""Writes the output in a load-time step and touches it in the timed one (invented; T12)."""

from redteam.arena import REFUSED, Attack, Folder, launch, step
from redteam.tasks import LINEAR, LINEAR_SOURCE, over_linear

NOTHING = 'extern "C" __global__ void touch(float* y) { y[0] = y[0]; }\n'
ATTACK = Attack(
    classes=("T12",),
    task=LINEAR,
    entry=Folder(LINEAR_SOURCE + NOTHING, launch(step("touch", ["out0"]), prepare=[over_linear()])),
    caught=(REFUSED, "rejected"),
    on_gpu=(REFUSED, "rejected"),
)
