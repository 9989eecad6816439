"""The index of a value that equals the largest to three digits: no tie at all (judge section 2.3; C34)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import ARGMAX, ARGMAX_SOURCE, over_argmax

ATTACK = Attack(
    classes=("C34",),
    task=ARGMAX,
    entry=Folder(
        ARGMAX_SOURCE.replace("in[i] > in[best]", "in[i] > in[best] + 1e-2f * fabsf(in[best])"), launch(over_argmax())
    ),
    caught=("wrong",),
    kinds=("mismatch",),
    on_gpu=("wrong",),
)
