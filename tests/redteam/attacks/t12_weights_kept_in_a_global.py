"""Keeps transformed weights in a module variable from the first call on (flashinfer-bench-starter-kit #21; T12)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import LINEAR, LINEAR_IN, LINEAR_OUT, LINEAR_SOURCE, over_linear

SOURCE = f"""
__device__ float kept[{LINEAR_IN * LINEAR_OUT}];
__device__ int ready;
""" + LINEAR_SOURCE.replace(
    "float sum = 0.0f;",
    """if (row == 0 && !ready) for (int i = 0; i < k; ++i) kept[col * k + i] = w[col * k + i];
    float sum = 0.0f;""",
)
ATTACK = Attack(
    classes=("T12", "C36"),
    task=LINEAR,
    entry=Folder(SOURCE, launch(over_linear())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
