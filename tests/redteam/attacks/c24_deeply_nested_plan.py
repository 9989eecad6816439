"""A launch plan of a hundred thousand brackets: a recursive reader runs out of stack (invented; C24)."""

from redteam.arena import REFUSED, Attack, Folder
from redteam.tasks import AFFINE, AFFINE_SOURCE

ATTACK = Attack(
    classes=("C24",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, '{"steps": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    caught=(REFUSED,),
    says="launch.json",
)
