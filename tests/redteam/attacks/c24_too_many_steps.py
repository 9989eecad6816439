"""A hundred thousand launches of a right kernel: each fits its limit, the plan as a whole does not end (invented)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(*[over_affine()] * 100_000)),
    caught=(REFUSED,),
)
