"""Reads with an atomic what lower blocks are hoped to have added by then: no race, but nobody waits (invented; C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_N, affine, over_affine

BODY = """if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(t, 3.0f);
    float seen = 3.0f;
    if (blockIdx.x > 0) seen = atomicAdd(t, 0.0f);
    if (i < n) y[i] = x[i] * seen + 1.0f;"""
ATTACK = Attack(
    classes=("C37",),
    task=AFFINE,
    entry=Folder(
        affine(BODY, kernel_args="const float* x, float* y, int n, float* t"),
        launch(
            over_affine("affine", "in0", "out0", {"i32": AFFINE_N}, "tmp"),
            buffers={"tmp": {"dtype": "float32", "shape": [1], "init": "zero"}},
        ),
    ),
    caught=("wrong",),
    kinds=("race",),
)
