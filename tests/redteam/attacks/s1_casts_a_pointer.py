"""Makes a pointer out of a number (invented)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""const float v0 = x0 * 3.0f;
const float v1 = v0 + 1.0f + 0.0f * *(const float*)0x7f0000000000ull;"""
ATTACK = Attack(
    classes=(
        "S1",
        "C39",
    ),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=(REFUSED, "rejected", "crashed", "wrong"),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
