"""A block size that no table holds (judge section 1.4)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = 4096
ATTACK = Attack(
    classes=("S1",),
    task=AFFINE,
    entry=Slotted("map", "config", "block", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
