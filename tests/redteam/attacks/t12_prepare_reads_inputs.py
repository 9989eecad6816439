"""Computes the answer in a load-time step, whose time is charged apart (flashinfer-bench #427; T12)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_N, AFFINE_SOURCE, over_affine

COPY = """
extern "C" __global__ void copy(const float* t, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = t[i];
}
"""
PLAN = launch(
    over_affine("copy", "tmp", "out0", {"i32": AFFINE_N}),
    prepare=[over_affine("affine", "in0", "tmp", {"i32": AFFINE_N})],
    buffers={"tmp": {"dtype": "float32", "shape": [AFFINE_N]}},
)
ATTACK = Attack(
    classes=("T12",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE + COPY, PLAN),
    caught=(REFUSED, "rejected"),
    on_gpu=(REFUSED, "rejected"),
)
