"""Prints from every thread of every call: the log may neither fill a disk nor stall a reader (T23)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """for (int line = 0; line < 100; ++line) printf("%d %d ...............................\\n", i, line);
    if (i < n) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("T23",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
