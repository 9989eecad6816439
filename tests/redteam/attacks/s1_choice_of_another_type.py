"""`True` where a number is wanted: equal in Python, another word in C++ (invented)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = True
ATTACK = Attack(
    classes=("S1",),
    task=AFFINE,
    entry=Slotted("map", "compute", "items", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
