"""Stores twos for true: equal as a boolean, other bits in memory (invented; C34)."""

from redteam.arena import Attack, Folder, Task, launch
from redteam.tasks import model, over_rows


def source(true: int) -> str:
    return f"""
extern "C" __global__ void above(const float* x, unsigned char* y) {{
    const int i = blockIdx.x * 128 + threadIdx.x;
    y[i] = x[i] > 0.0f ? {true} : 0;
}}
"""


PLAN = launch(over_rows("above", 8, "in0", "out0", block=128))
ABOVE = Task("above", model("x > 0", "torch.randn(8, 128)"), Folder(source(1), PLAN))
ATTACK = Attack(
    classes=("C34",),
    task=ABOVE,
    entry=Folder(source(2), PLAN),
    caught=("wrong",),
    kinds=("mismatch",),
    says="neither 0 nor 1",
    on_gpu=("wrong",),
)
