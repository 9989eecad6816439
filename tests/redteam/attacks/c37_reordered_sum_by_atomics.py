"""Adds with atomics into an output that nobody zeroed (judge catalogue C37)."""

from redteam.arena import Attack, Folder, launch, step
from redteam.tasks import PAIR, PAIR_ROWS, PAIR_SOURCE, over_pair

SOURCE = PAIR_SOURCE.replace("s[threadIdx.x] = sum;", "atomicAdd(s + threadIdx.x, sum);")
ZERO = 'extern "C" __global__ void zero(float* s) { s[threadIdx.x] = 0.0f; }\n'
ATTACK = Attack(
    classes=("C37",),
    task=PAIR,
    entry=Folder(SOURCE, launch(over_pair())),
    caught=("wrong",),
    kinds=("uninitialized", "uninitialised", "nonfinite"),
    control=Folder(SOURCE + ZERO, launch(step("zero", ["out1"], block=PAIR_ROWS), over_pair())),
    on_gpu=("wrong",),
)
