"""Launches from the device, so that work outlives what the timer sees (judge section 1.4; T1, T2)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BEFORE = """
__global__ void later(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 3.0f + 1.0f;
}
"""
ATTACK = Attack(
    classes=("T1", "T2"),
    task=AFFINE,
    entry=Folder(affine("if (i == 0) later<<<12, 128>>>(x, y, n);", BEFORE), launch(over_affine())),
    caught=("rejected", "compile_error"),
    on_gpu=("rejected", "compile_error"),
)
