"""A scalar that overflows its type, so that the kernel sees a negative size and does nothing (invented; C2)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C2", "T30"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine("affine", "in0", "out0", {"i32": 2**31}))),
    caught=(REFUSED,),
    says="i32 takes an integer",
)
