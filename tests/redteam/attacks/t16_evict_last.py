"""Asks L2 to keep its input: a flush between calls would not evict it (pygpubench #49; llm.c #851; T16)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i >= n) return;
    float v;
    asm volatile("ld.global.L1::HINT.f32 %0, [%1];" : "=f"(v) : "l"(x + i));
    y[i] = v * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("T16",),
    task=AFFINE,
    entry=Folder(affine(BODY.replace("HINT", "evict_last")), launch(over_affine())),
    caught=("rejected",),
    control=Folder(affine(BODY.replace("HINT", "no_allocate")), launch(over_affine())),
    on_gpu=("rejected",),
)
