"""An assertion that fails in one thread after the stores: silence is no evidence (judge catalogue C31)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

FAIL = """
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned long long);
"""
BODY = """if (i < n) y[i] = x[i] * 3.0f + 1.0f;
    if (i == 5) __assertfail("a", "b", 1, "c", 1);"""
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(affine(BODY, FAIL), launch(over_affine())),
    caught=("crashed", "rejected", "compile_error"),
    on_gpu=("crashed", "rejected", "compile_error"),
)
