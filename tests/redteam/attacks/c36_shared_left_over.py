"""Reads shared memory that it never wrote: the last block's answer may still be there (judge catalogue C36)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """extern __shared__ float left[];
    const bool mine = left[threadIdx.x] == 77.0f;
    if (i < n) y[i] = mine ? 0.0f : x[i] * 3.0f + 1.0f;
    __syncthreads();
    left[threadIdx.x] = 77.0f;"""
ATTACK = Attack(
    classes=("C36", "C33"),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine(shared_bytes=512))),
    caught=("wrong",),
    kinds=("uninitialised", "uninitialized"),
    control=Folder(
        affine(BODY.replace("const bool mine = left[threadIdx.x] == 77.0f;", "const bool mine = false;")),
        launch(over_affine(shared_bytes=512)),
    ),
)
