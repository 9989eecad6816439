"""Keeps state on the device heap, which lives as long as the context (judge catalogue C36)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i == 0) { int* kept = (int*)malloc(64); if (kept) kept[0] = 1; }
    if (i < n) y[i] = x[i] * 3.0f + 1.0f;"""
ATTACK = Attack(
    classes=("C36",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("rejected",),
    on_gpu=("rejected",),
)
