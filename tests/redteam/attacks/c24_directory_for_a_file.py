"""kernel.cu is a folder (invented; C24)."""

from pathlib import Path

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, over_affine


def build(folder: Path) -> None:
    """Puts a folder in the place of the source."""
    (folder / "kernel.cu").unlink()
    (folder / "kernel.cu").mkdir()


ATTACK = Attack(
    classes=("C24",),
    task=AFFINE,
    entry=Folder("", launch(over_affine()), build),
    caught=(REFUSED,),
    says="kernel.cu",
)
