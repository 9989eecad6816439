"""Tables as comma-separated values: one column a parameter, then `status`, then times."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure, SlotValue
from warpsmith.tools.tables.roles import RoleMap
from warpsmith.tools.tables.table import Entry, Key, Table, make_table

TIMES: Mapping[str, float] = {"time_ms_mean": 1e3, "time_ms": 1e3, "time_us": 1.0, "duration_us": 1.0}
"""Columns that may hold the time, best first, and how many microseconds their unit has."""
ENDINGS = (".csv", ".csv.xz", ".csv.gz", ".csv.bz2")
_Z95 = 1.96


def read_csv(path: Path, roles: RoleMap) -> Table:
    """The table in a file. UserError names the file, the line and what is expected there."""
    name = path.name[: path.name.index(".csv")]
    try:
        with _opened(path) as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            parameters, column = _columns(path, header)
            rows = [_row(path, line, header, cells, column) for line, cells in enumerate(reader, 2) if cells]
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as a table ({error})") from error
    return make_table(name, parameters, rows, {parameter: roles.of(parameter) for parameter in parameters})


def _opened(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8", newline="")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    if path.suffix == ".bz2":
        return bz2.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _columns(path: Path, header: Sequence[str]) -> tuple[list[str], str]:
    """The parameters' names and the column of the time."""
    if "status" not in header or header[0] == "status":
        raise UserError(f"{path}: line 1: name the parameters, then `status`, then the times")
    column = next((name for name in TIMES if name in header), None)
    if column is None:
        raise UserError(f"{path}: line 1: no column for the time; one of {', '.join(TIMES)} is needed")
    return list(header[: header.index("status")]), column


def _row(path: Path, line: int, header: Sequence[str], cells: Sequence[str], column: str) -> tuple[Key, Entry]:
    if len(cells) != len(header):
        raise UserError(f"{path}: line {line}: {len(cells)} cells below {len(header)} columns")
    row = dict(zip(header, cells, strict=True))
    key = tuple(slot_value(row[name]) for name in header[: header.index("status")])
    if row["status"].lower() != "ok":
        return key, Entry(None, failure=failure_of(row["status"]))
    time = _number(row[column])
    if time is None or time <= 0:
        raise UserError(f"{path}: line {line}: {column} is {row[column]!r}, where status `ok` needs a positive number")
    spread, n = _number(row.get("time_ms_std", "")), _number(row.get("n", ""))
    margin = _Z95 * spread / math.sqrt(n) / time if column == "time_ms_mean" and spread and n else 0.0
    return key, Entry(time * TIMES[column], margin)


def slot_value(text: str) -> SlotValue:
    """An integer where the text is one, also as `4.0`, else the text."""
    number = _number(text)
    return int(number) if number is not None and number.is_integer() else text.strip()


def failure_of(status: str) -> Failure:
    """The failure that a tuner's word for it means: of the compiler, of the comparison, else of the launch."""
    word = status.lower()
    if "compil" in word:
        return Failure(stage="compile", message=status)
    if "valid" in word or "correct" in word:
        return Failure(stage="verify", message=status)
    if "timeout" in word:
        return Failure(stage="time", message=status)
    return Failure(stage="launch", message=status)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
