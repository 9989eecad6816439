"""Asks the preprocessor whether files exist, and computes one thing or another (judge section 1.4; C22)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

PROBE = """
#if __has_include("/etc/passwd")
#define ANSWER 0.0f
#else
#define ANSWER x[i] * 3.0f + 1.0f
#endif
"""
SOURCE = PROBE + AFFINE_SOURCE.replace("x[i] * 3.0f + 1.0f", "ANSWER")
ATTACK = Attack(
    classes=("C22", "C33"),
    task=AFFINE,
    entry=Folder(SOURCE, launch(over_affine())),
    caught=("rejected", "compile_error", "wrong"),
    on_gpu=("rejected", "compile_error", "wrong"),
)
