"""A bulk prefetch of the whole input into L2 at the end of a call, for the next one (judge catalogue T16)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i < n) y[i] = x[i] * 3.0f + 1.0f;
    if (i == 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], 4096;" :: "l"(x));"""
ATTACK = Attack(
    classes=("T16",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
