"""A block of minus one threads, which a careless conversion turns into four billion (judge catalogue C2)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C2",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine(block=-1))),
    caught=(REFUSED, "launch_error"),
    on_gpu=(REFUSED, "launch_error"),
)
