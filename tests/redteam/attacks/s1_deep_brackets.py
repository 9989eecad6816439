"""Ten thousand brackets in one expression: a recursive parser runs out of stack (invented)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = "{default}\nconst float deep = " + "(" * 10_000 + "1.0f" + ")" * 10_000 + ";"
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
