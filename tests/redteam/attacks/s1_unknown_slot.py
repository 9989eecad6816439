"""A slot that the template does not have (invented)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = "x"
ATTACK = Attack(
    classes=("S1",),
    task=AFFINE,
    entry=Slotted("map", "compute", "prelude", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
