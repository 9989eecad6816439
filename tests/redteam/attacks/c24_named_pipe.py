"""launch.json is a pipe that nobody writes to: whoever opens it waits for ever (invented; C24, C31)."""

import os
from pathlib import Path

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine


def build(folder: Path) -> None:
    """Puts a pipe in the place of the plan."""
    (folder / "launch.json").unlink()
    os.mkfifo(folder / "launch.json")


ATTACK = Attack(
    classes=("C24", "C31"),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine()), build),
    caught=(REFUSED,),
    says="launch.json: is no regular file",
)
