"""Baselines that were measured once and hold for every run on the same device: records, keys and the folder of them."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from warpsmith.kernels.records import SCHEMA_VERSION, Record, SchemaVersion, content_hash
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.runs.store import write_atomically

EAGER, COMPILE, REDUCE_OVERHEAD, MAX_AUTOTUNE = "eager", "compile", "reduce-overhead", "max-autotune"
ALWAYS = (EAGER, COMPILE, REDUCE_OVERHEAD)
"""Modes that every problem is measured under; max-autotune takes minutes a problem."""
FLAGS = "matmul float32 highest, cuDNN default"
"""What the timing process pins (`tools/verification/oracle.py`, `pin_flags`): part of every key."""


class BaselineKey(Record):
    """What a time depends on; the module's mode is part of the problem's hash."""

    problem_hash: str
    device: str
    driver: str
    torch: str
    mode: str
    """`eager`, or a mode of torch.compile: `compile` (default), `reduce-overhead`, `max-autotune`."""
    flags: str = FLAGS

    @property
    def name(self) -> str:
        """The name of its file."""
        return content_hash(self.model_dump(mode="json"))[:32]


class BaselineRecord(Record):
    """One mode of one problem, with its raw samples."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    key: BaselineKey
    at: str
    """UTC, ISO 8601."""
    method: str = "events"
    samples: tuple[float, ...] = ()
    """Microseconds."""
    eager: tuple[float, ...] = ()
    """Eager in the same rounds: sample i was taken next to sample i."""
    failure: str | None = None
    """Why this mode cannot be had here; then there are no samples."""
    compile_s: float = 0.0
    """What torch.compile took in the timing process, from its disk cache where that was warm."""
    notes: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """The key's."""
        return self.key.mode

    @property
    def median_us(self) -> float | None:
        """The median; None where there are no samples."""
        ordered = sorted(self.samples)
        middle = len(ordered) // 2
        if not ordered:
            return None
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class BaselineFolder:
    """Records by key, one file each, shared by all runs and processes."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: None takes `baselines` in the cache folder."""
        self.folder = folder or default_cache_dir() / "baselines"

    def get(self, key: BaselineKey) -> BaselineRecord | None:
        """What was measured; None where nothing was, or the file is damaged or of another version."""
        try:
            found = BaselineRecord.model_validate_json((self.folder / f"{key.name}.json").read_bytes())
        except (OSError, ValidationError):
            return None
        return found if found.key == key else None

    def put(self, record: BaselineRecord) -> None:
        """Keeps a record, in place of an older one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / f"{record.key.name}.json", record.model_dump_json().encode())
