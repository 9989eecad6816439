"""Prefetches its input into L2 to stay there (judge section 1.4; T16)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i >= n) return;
    y[i] = x[i] * 3.0f + 1.0f;
    asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(x + i));"""
ATTACK = Attack(
    classes=("T16",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
