"""A source of many gigabytes that take no room on its disk (invented; C24, C31)."""

import os
from pathlib import Path

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine


def build(folder: Path) -> None:
    """Stretches the source without writing to it."""
    os.truncate(folder / "kernel.cu", 1 << 34)


ATTACK = Attack(
    classes=("C24", "C31"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine()), build),
    caught=(REFUSED,),
    says="larger than",
)
