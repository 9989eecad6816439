"""Rounds its result to half precision, as a kernel for mixed precision would store it (judge section 2.3; C10)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import SOFTMAX, over_softmax, softmax

HALF = """
__device__ float half(float v) {
    unsigned short h; float r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
}
"""
SOURCE = softmax(before=HALF).replace("out[i] = expf(in[i] - m) / s", "out[i] = half(expf(in[i] - m) / s)")
ATTACK = Attack(
    classes=("C10",),
    task=SOFTMAX,
    entry=Folder(SOURCE, launch(over_softmax())),
    caught=("wrong",),
    kinds=("mismatch",),
    on_gpu=("wrong",),
)
