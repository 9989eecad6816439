"""A grid with a million digits: reading it takes a reader's time, printing it a log's space (invented; C24)."""

from redteam.arena import REFUSED, Attack, Folder
from redteam.tasks import AFFINE, AFFINE_SOURCE

PLAN = '{"steps": [{"kernel": "affine", "grid": [' + "9" * 1_000_000 + ', 1, 1], "block": [1, 1, 1], "args": []}]}'
ATTACK = Attack(
    classes=("C24",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, PLAN),
    caught=(REFUSED,),
    says="launch.json",
)
