"""A folder of recorded tables."""

from __future__ import annotations

from pathlib import Path

from warpsmith.kernels.errors import UserError
from warpsmith.tools.t4 import looks_like_t4, read_t4
from warpsmith.tools.tables.csv_file import ENDINGS, read_csv
from warpsmith.tools.tables.roles import role_map
from warpsmith.tools.tables.table import Table

EXPECTED = "tables are NAME.csv (also .xz, .gz, .bz2) or T4 results files NAME.json"


def table_files(folder: Path) -> list[Path]:
    """The tables in a folder, by name; where it has none, those in its `tables`. UserError where there are none."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; {EXPECTED}")
    for place in (folder, folder / "tables"):
        found = sorted(path for path in place.iterdir() if _is_table(path)) if place.is_dir() else []
        if found:
            return found
    raise UserError(f"{folder}: holds no table; {EXPECTED}")


def read_table(path: Path) -> Table:
    """The table in a file, with roles by the `roles.toml` beside it and then by ours."""
    roles = role_map(path.parent)
    return read_csv(path, roles) if path.name.endswith(ENDINGS) else read_t4(path, roles)


def table_name(path: Path) -> str:
    """The name of a file's table."""
    ending = next((end for end in (*ENDINGS, ".t4.json", ".json") if path.name.endswith(end)), "")
    return path.name.removesuffix(ending)


def _is_table(path: Path) -> bool:
    if not path.is_file():
        return False
    return path.name.endswith(ENDINGS) or (
        path.suffix == ".json" and looks_like_t4(path.read_text("utf-8", errors="replace"))
    )
