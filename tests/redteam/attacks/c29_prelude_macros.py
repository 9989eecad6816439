"""Redefines what the checks read: the name of the kernel, `int`, `const` (judge section 1.4; C29)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

MACROS = "#define n 750\n#define affine affine_other\n"
SOURCE = AFFINE_SOURCE.replace("int n)", "int size)")
ATTACK = Attack(
    classes=("C29", "T30"),
    task=AFFINE,
    entry=Folder(MACROS + SOURCE, launch(over_affine())),
    caught=("compile_error", "rejected"),
    on_gpu=("compile_error", "rejected"),
)
