"""Changes the sign of one zero-weight element of its input after use (judge catalogue C4)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = "if (i < n) { y[i] = x[i] * 3.0f + 1.0f; if (i == 77) x[i] = -x[i]; }"
ATTACK = Attack(
    classes=("C4",),
    task=AFFINE,
    entry=Folder(affine(BODY, kernel_args="float* x, float* y, int n"), launch(over_affine())),
    caught=("wrong",),
    kinds=("inputs_changed",),
    on_gpu=("wrong",),
)
