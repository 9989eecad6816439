"""A source that is no UTF-8 (invented; C24)."""

from pathlib import Path

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine


def build(folder: Path) -> None:
    """Appends bytes that no text has."""
    with (folder / "kernel.cu").open("ab") as file:
        file.write(b"\xff\xfe// \xc3\x28")


ATTACK = Attack(
    classes=("C24",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine()), build),
    caught=(REFUSED,),
    says="cannot be read as text",
)
