"""A grid of no blocks: nothing runs, in no time (wafer, "104x"; judge catalogue C2, T30)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C2", "T30"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine(grid=0))),
    caught=(REFUSED, "launch_error"),
    on_gpu=(REFUSED, "launch_error"),
)
