"""The folder of a suite run: manifest, rows of finished problems and the run folders below, safe against kills."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from warpsmith.app.suite.records import ProblemRow, SuiteManifest, SuiteProblem
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Event, Record
from warpsmith.tools.measurement.baseline_records import BaselineRecord
from warpsmith.tools.runs.jsonlines import JsonLines
from warpsmith.tools.runs.store import acquire, release, room_needed, utc_now, write_atomically

MANIFEST, ROWS, EVENTS, BASELINES = "suite.json", "results.jsonl", "events.jsonl", "baselines.jsonl"
RUNS = "runs"


class SuiteFolder:
    """One suite run's folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = acquire(folder)
        self._rows = JsonLines(folder / ROWS, durable=True)
        self._events = JsonLines(folder / EVENTS, durable=False)
        self._baselines = JsonLines(folder / BASELINES, durable=True)
        self.rows: dict[str, ProblemRow] = {}
        """By key; a problem that was taken up again after it had ended has its newest row."""
        self.baselines: dict[tuple[str, str], BaselineRecord] = {}
        """By key and mode."""

    @classmethod
    def create(cls, name: str, out: Path, *, command: str = "bench") -> SuiteFolder:
        """A new empty folder `<utc>-<command>-<name>-<id>` under `out`."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        clean = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:40] or "suite"
        folder = out / f"{stamp}-{command}-{clean}-{secrets.token_hex(3)}"
        with room_needed(folder):
            (folder / RUNS).mkdir(parents=True)
            return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> SuiteFolder:
        """An existing one. UserError where it is none, is broken, or is being written."""
        if not (folder / MANIFEST).is_file():
            raise UserError(f"{folder} is no suite run (it lacks {MANIFEST}): name one that `warpsmith bench` made")
        found = cls(folder)
        try:
            found.manifest()
            found._load()
        except BaseException:
            found.close()
            raise
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            release(self.folder, self._lock)
            self._lock = None

    def write_manifest(self, manifest: SuiteManifest) -> None:
        """Writes suite.json."""
        with room_needed(self.folder):
            write_atomically(self.folder / MANIFEST, manifest.model_dump_json(indent=1).encode())

    def manifest(self) -> SuiteManifest:
        """suite.json; UserError where it is broken or of another version."""
        return read_manifest(self.folder)

    def append(self, row: ProblemRow) -> None:
        """Adds a row and forces it to the disk: from then on its problem is done."""
        with room_needed(self.folder):
            self._rows.append(row.model_dump_json())
        self.rows[row.key] = row

    def keep_baseline(self, key: str, record: BaselineRecord) -> None:
        """Notes a baseline of a problem, raw samples and all: the folder says by itself what it was held against."""
        if self.baselines.get((key, record.mode)) == record:
            return
        with room_needed(self.folder):
            self._baselines.append(_KeptBaseline(key=key, record=record).model_dump_json())
        self.baselines[key, record.mode] = record

    def event(self, kind: str, **data: Any) -> None:
        """Adds a line to events.jsonl."""
        with room_needed(self.folder):
            self._events.append(Event(at=utc_now(), kind=kind, data=data).model_dump_json())

    def began_anything(self) -> bool:
        """Whether a call has begun any work."""
        path = self.folder / EVENTS
        return path.is_file() and path.stat().st_size > 0

    def begun(self) -> frozenset[str]:
        """Keys of the problems that some call has begun, as the events say."""
        found = set()
        for _, line in self._events.numbered():
            with contextlib.suppress(ValidationError):
                event = Event.model_validate_json(line)
                if event.kind == "started":
                    found.add(str(event.data.get("key")))
        return frozenset(found)

    def home(self, problem: SuiteProblem) -> Path:
        """Where the problem's run folders lie."""
        return self.folder / RUNS / problem.key

    def run_of(self, problem: SuiteProblem) -> Path | None:
        """The problem's newest whole run folder, to be gone on with; None where there is none."""
        return newest_run(self.home(problem))

    def _load(self) -> None:
        for file in (self._rows, self._events, self._baselines):
            file.mend()
        self.rows = read_rows(self.folder)
        self.baselines = read_baselines(self.folder)


class _KeptBaseline(Record):
    """A line of baselines.jsonl."""

    key: str
    record: BaselineRecord


def whole_runs(home: Path) -> list[Path]:
    """The whole run folders below `home`, the oldest first: names begin with the time."""
    whole = [path.parent for path in home.glob("*/manifest.json") if (path.parent / "results.jsonl").is_file()]
    return sorted(whole, key=lambda path: path.name)


def newest_run(home: Path) -> Path | None:
    """The newest of them; None where there is none."""
    return next(reversed(whole_runs(home)), None)


def read_manifest(folder: Path) -> SuiteManifest:
    """suite.json of a folder that somebody may be writing."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"{folder} is no suite run (it lacks {MANIFEST}): name one that `warpsmith bench` made")
    try:
        return SuiteManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise UserError(f"{path} is no manifest of a suite run: {place}: {first['msg']}; start a new one") from error


def read_rows(folder: Path) -> dict[str, ProblemRow]:
    """The newest row of every problem that ended, in the order in which they first ended."""
    rows: dict[str, ProblemRow] = {}
    for number, line in JsonLines(folder / ROWS, durable=False).numbered():
        with _explained(folder / ROWS, number):
            row = ProblemRow.model_validate_json(line)
            rows[row.key] = row
    return rows


def read_baselines(folder: Path) -> dict[tuple[str, str], BaselineRecord]:
    """The baselines that the suite was held against, by key and mode."""
    found: dict[tuple[str, str], BaselineRecord] = {}
    for number, line in JsonLines(folder / BASELINES, durable=False).numbered():
        with _explained(folder / BASELINES, number):
            kept = _KeptBaseline.model_validate_json(line)
            found[kept.key, kept.record.mode] = kept.record
    return found


@contextlib.contextmanager
def _explained(path: Path, number: int) -> Iterator[None]:
    """A line that is none of ours, with its place and the remedy."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the line"
        remedy = "remove that line, and what it stands for is done again"
        raise UserError(f"{path}:{number} is no row of this version ({place}: {first['msg']}): {remedy}") from error
