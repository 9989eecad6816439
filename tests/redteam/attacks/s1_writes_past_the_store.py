"""Writes the output through the kernel's own pointer, past the template's store (invented)."""

from redteam.arena import REFUSED, Attack, Slotted
from redteam.tasks import AFFINE

TEXT = r"""{default}
out0[0] = 12345.0f;"""
ATTACK = Attack(
    classes=(
        "S1",
        "C37",
    ),
    task=AFFINE,
    entry=Slotted("map", "compute", "body", TEXT),
    caught=(REFUSED, "rejected", "compile_error", "wrong"),
    control=Slotted("map", "compute", "body", "const float v0 = fmaf(x0, 3.0f, 1.0f);\nconst float v1 = v0;"),
)
