"""A slot text of two hundred kilobytes (judge section 1.4, bombs)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""{default}
// xxxxxxxxxx"""
TEXT += "x" * 200_000
ATTACK = Attack(
    classes=(
        "S1",
        "S3",
    ),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
