"""Adds a scratch buffer that nobody wrote, which a fresh allocator would have zeroed (judge catalogue C37)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_N, affine, over_affine

BODY = "if (i < n) y[i] = x[i] * 3.0f + 1.0f + t[i];"
PLAN = launch(
    over_affine("affine", "in0", "out0", {"i32": AFFINE_N}, "tmp"),
    buffers={"tmp": {"dtype": "float32", "shape": [AFFINE_N]}},
)
ZEROED = {**PLAN, "buffers": {"tmp": {"dtype": "float32", "shape": [AFFINE_N], "init": "zero"}}}
ARGS = "const float* x, float* y, int n, const float* t"
ATTACK = Attack(
    classes=("C37", "C1"),
    task=AFFINE,
    entry=Folder(affine(BODY, kernel_args=ARGS), PLAN),
    caught=("wrong",),
    kinds=("uninitialised", "uninitialized", "nonfinite", "mismatch"),
    control=Folder(affine(BODY, kernel_args=ARGS), ZEROED),
    on_gpu=("wrong",),
)
