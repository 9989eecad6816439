"""The second output is computed from the first before that is written (invented; C37)."""

from redteam.arena import Attack, Folder, launch, step
from redteam.tasks import PAIR, PAIR_DIM, PAIR_ROWS, PAIR_SOURCE, over_pair

SUM = """
extern "C" __global__ void sum(const float* y, float* s, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += y[threadIdx.x * n + i];
    s[threadIdx.x] = sum;
}
"""
SECOND = step("sum", ["out0", "out1", {"i32": PAIR_DIM}], block=PAIR_ROWS)
ATTACK = Attack(
    classes=("C37",),
    task=PAIR,
    entry=Folder(PAIR_SOURCE.replace("s[threadIdx.x] = sum;", "") + SUM, launch(SECOND, over_pair())),
    caught=("wrong",),
    kinds=("uninitialized", "uninitialised", "nonfinite"),
    control=Folder(PAIR_SOURCE.replace("s[threadIdx.x] = sum;", "") + SUM, launch(over_pair(), SECOND)),
    on_gpu=("wrong",),
)
