"""A macro that doubles itself forty times: the compiler never ends (judge section 1.4; C31)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

LINES = ["#define M0 x[i] +"] + [f"#define M{n} M{n - 1} M{n - 1}" for n in range(1, 41)]
SOURCE = "\n".join(LINES) + AFFINE_SOURCE.replace("x[i] * 3.0f", "M40 x[i] * 3.0f")
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(SOURCE, launch(over_affine())),
    caught=("compile_error", "rejected"),
    on_gpu=("compile_error", "rejected"),
)
