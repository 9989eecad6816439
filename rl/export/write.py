"""Rows on the disk: JSON lines always, Parquet where pyarrow is installed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpsmith.kernels.errors import UserError
from warpsmith.tools.runs.store import room_needed, write_atomically


def require_parquet() -> None:
    """UserError where pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UserError(
            "--parquet needs pyarrow: pip install 'warpsmith[train]' (or pip install pyarrow); JSON lines need nothing"
        ) from None


def write_rows(rows: Sequence[dict[str, Any]], folder: Path, name: str, *, parquet: bool) -> list[Path]:
    """Writes NAME.jsonl and, where wanted, NAME.parquet with the same rows. UserError where pyarrow is missing."""
    if parquet:
        require_parquet()
    files = [folder / f"{name}.jsonl"]
    with room_needed(folder, option="--to DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
        write_atomically(files[0], "".join(f"{line}\n" for line in lines).encode())
        if parquet:
            files.append(folder / f"{name}.parquet")
            write_atomically(files[1], _parquet(rows))
    return files


def _parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())
