"""kernel.cu is a link to a file of the judge's machine, whose lines a compiler error would quote (judge 1.4; C24)."""

from pathlib import Path

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, over_affine


def build(folder: Path) -> None:
    """Puts a link in the place of the source."""
    (folder / "kernel.cu").unlink()
    (folder / "kernel.cu").symlink_to("/etc/passwd")


ATTACK = Attack(
    classes=("C24", "C39"),
    task=AFFINE,
    entry=Folder("", launch(over_affine()), build),
    caught=(REFUSED,),
    says="kernel.cu: is a symbolic link",
)
