"""An attribute that changes how the kernel is linked (invented)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""__attribute__((used)) float kept = 0.0f;
{default}
"""
ATTACK = Attack(
    classes=("S1",),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=(REFUSED,),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
