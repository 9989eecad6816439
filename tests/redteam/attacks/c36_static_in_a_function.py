"""A function-local static variable is a module variable by another name (judge catalogue C36)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """static int calls;
    if (i == 0) ++calls;
    if (i < n) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C36",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
