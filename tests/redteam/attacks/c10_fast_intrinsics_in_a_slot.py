"""A division by an approximate reciprocal of few bits, in a slot (C10)."""

from redteam.arena import Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""const float v0 = __fdividef(x0, 0.33333f);
const float v1 = v0 + 1.0f;"""
ATTACK = Attack(
    classes=("C10",),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=("wrong",),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
