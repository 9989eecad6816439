"""Makes a cache policy that keeps lines in L2 and loads with it (judge catalogue T16)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i >= n) return;
    unsigned long long policy; float v;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(v) : "l"(x + i), "l"(policy));
    y[i] = v * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("T16",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
