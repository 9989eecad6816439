"""A managed variable: a global that the host and other processes' kernels could see (judge catalogue C36)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i == 0) ++calls;
    if (i < n) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C36",),
    task=AFFINE,
    entry=Folder(affine(BODY, "__managed__ int calls;"), launch(over_affine())),
    caught=("rejected", "compile_error"),
    on_gpu=("rejected", "compile_error"),
)
