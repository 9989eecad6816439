"""Includes a file of the machine, whose text comes back in the compiler's errors (judge section 1.4; C22, C39)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C22", "C39"),
    task=AFFINE,
    entry=Folder('#include "/etc/passwd"\n' + AFFINE_SOURCE, launch(over_affine())),
    caught=("compile_error", "rejected"),
    says="^(?!.*root:)",
    control=Folder("#include <cuda_fp16.h>\n" + AFFINE_SOURCE, launch(over_affine())),
    on_gpu=("compile_error", "rejected"),
)
