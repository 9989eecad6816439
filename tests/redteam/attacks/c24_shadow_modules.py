"""Leaves a torch.py and a sitecustomize.py beside a wrong kernel, for whoever imports from there (pygpubench; C24)."""

from pathlib import Path

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, affine, over_affine

EVIL = "import os\nos._exit(0)\n"


def build(folder: Path) -> None:
    """Leaves modules that end the process of whoever imports them."""
    for name in ("torch", "numpy", "json", "sitecustomize", "usercustomize", "warpsmith", "problem", "conftest"):
        (folder / f"{name}.py").write_text(EVIL)


ATTACK = Attack(
    classes=("C24", "C20", "C23"),
    task=AFFINE,
    entry=Folder(affine("if (i < n) y[i] = 0.0f;"), launch(over_affine()), build),
    caught=("wrong",),
    kinds=("mismatch",),
    control=Folder(AFFINE_SOURCE, launch(over_affine()), build),
    on_gpu=("wrong",),
)
