"""Reads through volatile what lower blocks are hoped to have written, without fence or wait (invented; C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_N, affine, over_affine

BODY = """if (blockIdx.x == 0 && threadIdx.x < 2) t[threadIdx.x] = threadIdx.x == 0 ? 3.0f : 1.0f;
    const volatile float* seen = t;
    if (blockIdx.x > 0 && i < n) y[i] = x[i] * seen[0] + seen[1];
    if (blockIdx.x == 0) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C37",),
    task=AFFINE,
    entry=Folder(
        affine(BODY, kernel_args="const float* x, float* y, int n, float* t"),
        launch(
            over_affine("affine", "in0", "out0", {"i32": AFFINE_N}, "tmp"),
            buffers={"tmp": {"dtype": "float32", "shape": [2]}},
        ),
    ),
    caught=("wrong",),
    kinds=("race",),
)
