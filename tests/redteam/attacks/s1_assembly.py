"""Assembly in a slot, past every rule on names (judge section 1.4)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""{default}
asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(&v1));"""
ATTACK = Attack(
    classes=(
        "S1",
        "T16",
    ),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
