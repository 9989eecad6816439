"""Fifty thousand errors: the log may neither fill a disk nor hide the first of them (invented; C31, T23)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

ATTACK = Attack(
    classes=("C31", "T23"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE + "\n".join(f"int v{n} = w{n};" for n in range(50_000)), launch(over_affine())),
    caught=("compile_error", "rejected"),
    on_gpu=("compile_error", "rejected"),
)
