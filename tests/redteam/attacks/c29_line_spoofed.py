"""`#line` and `#pragma` that blame another file or silence the compiler (judge section 1.4; C29)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

SPOOF = '#line 1 "/usr/lib/tools/verify.py"\n#pragma nv_diag_suppress 20012\n'
ATTACK = Attack(
    classes=("C29", "T24"),
    task=AFFINE,
    entry=Folder(SPOOF + affine("if (i < n) y[i] = 1.0f;"), launch(over_affine())),
    caught=("wrong", "rejected"),
    on_gpu=("wrong", "rejected"),
)
