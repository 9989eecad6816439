"""Writes to a constant table through a cast: read-only in name (judge catalogue C36)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

TABLE = "__constant__ float factor[2] = {3.0f, 1.0f};"
BODY = "if (i < n) y[i] = x[i] * factor[0] + factor[1];"
SPOIL = BODY + " if (i == 0) const_cast<float*>(factor)[0] = 4.0f;"
ATTACK = Attack(
    classes=("C36",),
    task=AFFINE,
    entry=Folder(affine(SPOIL, TABLE), launch(over_affine())),
    caught=("rejected", "crashed", "compile_error"),
    control=Folder(affine(BODY, TABLE), launch(over_affine())),
    on_gpu=("rejected", "crashed", "wrong", "compile_error"),
)
