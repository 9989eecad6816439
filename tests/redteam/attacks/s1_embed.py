"""Embeds a file from within a slot (C23)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""{default}
const char s[] = {
#embed "/etc/passwd"
};"""
ATTACK = Attack(
    classes=(
        "S1",
        "C22",
    ),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
