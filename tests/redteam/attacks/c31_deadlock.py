"""Half of each block waits for the other at a barrier that the other never reaches (judge catalogue C31)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i < n) y[i] = x[i] * 3.0f + 1.0f;
    if (threadIdx.x < 64) asm volatile("bar.sync 1, 128;" ::: "memory");
    else asm volatile("bar.sync 2, 128;" ::: "memory");"""
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("wrong", "hang"),
    kinds=("divergent_barrier", "deadlock", "barrier"),
    control=Folder(affine(BODY.replace("128;", "64;")), launch(over_affine())),
    on_gpu=("hang",),
)
