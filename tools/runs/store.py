"""The run folder: manifest, events, results and blobs by content, safe against kills and a full disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ValidationError

from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.kernels.records import Candidate, Event, Outcome, RunManifest
from warpsmith.tools.runs.jsonlines import JsonLines
from warpsmith.tools.runs.ledger import Ledger

Level = Literal["screen", "full"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENODEV, errno.EISDIR,
    errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL,
}  # fmt: skip
_held: set[Path] = set()
"""Folders that this process writes: POSIX record locks do not exclude a second holder in one process."""


_BEGINNINGS = {
    "manifest.json", "events.jsonl", "results.jsonl", "failures.jsonl", "blobs", "run.lock",
    "checkpoints.db", "checkpoints.db-wal", "checkpoints.db-shm", "chat_history",
}  # fmt: skip
"""What a run folder has before anything was evaluated."""
_TEMPORARY = ".tmp"
"""How names end that `write_atomically` has not yet replaced."""


def utc_now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextlib.contextmanager
def room_needed(folder: Path, *, option: str = "--out DIR", resumable: bool = False) -> Iterator[None]:
    """Turns a full disk or an exceeded quota into an EnvironmentError_ and a refused write into a UserError, with the
    remedy. `option` is the flag that names another place; `resumable`: the folder is a run to go on with."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "no space"
        if error.errno in _NO_ROOM and resumable:
            raise no_room(folder, reason) from error
        if error.errno in _NO_ROOM:
            text = f"no room left to write {folder} ({reason}): free some space, or choose {option} on another disk"
            raise EnvironmentError_(text) from error
        if error.errno in _REFUSED:
            raise UserError(f"cannot write {folder} ({error.strerror}): choose {option} that you can write") from error
        raise


def no_room(folder: Path, reason: str) -> EnvironmentError_:
    """The message for a run on a disk that is full, however that showed."""
    return EnvironmentError_(
        f"no room left to write {folder} ({reason}): everything finished so far is kept; "
        f"free some space and continue with --resume {folder}, or start anew with --out DIR on another disk"
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Writes through a temporary file of the same folder and a rename, so that readers see all or
    nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_TEMPORARY)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class RunStore:
    """One run's folder. A writer holds its lock; any number of readers may look on."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self.folder = folder
        self.writable = writable
        self._lock = acquire(folder) if writable else None
        self._events = JsonLines(folder / "events.jsonl", durable=False)
        self._results = JsonLines(folder / "results.jsonl", durable=True)
        self._ledger = Ledger(folder / "failures.jsonl")
        self._outcomes: dict[str, list[Outcome]] = {}
        self.broken: list[str] = []
        """Lines of results.jsonl that were left out, with the reason; only where the reader asked for that."""

    @classmethod
    def create(cls, name: str, out_dir: Path | str = "runs") -> RunStore:
        """A new empty run folder `<utc>-<name>-<id>` under `out_dir`, locked for this process."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        clean = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60] or "run"
        folder = Path(out_dir) / f"{stamp}-{clean}-{secrets.token_hex(3)}"
        with room_needed(folder):
            (folder / "blobs").mkdir(parents=True)
            store = cls(folder, writable=True)
            (folder / "results.jsonl").touch()
            (folder / "events.jsonl").touch()
        return store

    def discard(self) -> None:
        """Removes a run that could not be begun."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def kept_if_used(self) -> Iterator[None]:
        """Around the begin of a run: an error before anything was evaluated or answered takes the folder away again,
        unless its message names the folder."""
        try:
            yield
        except Exception as error:
            if not self.used and str(self.folder) not in str(error):
                self.discard()
            raise

    @property
    def used(self) -> bool:
        """Whether anything is there to go on from: an outcome, or a file beyond those that every run begins with."""
        present = {path.name for path in self.folder.iterdir()}
        return bool(self._outcomes) or not present <= _BEGINNINGS

    @classmethod
    def open(cls, folder: Path | str, *, writable: bool = True, skip_broken: bool = False) -> RunStore:
        """An existing run. UserError says what is missing or broken, or who is writing it. With `skip_broken` lines
        that are no outcomes are left out and noted in `broken`."""
        path = Path(folder)
        if not path.is_dir():
            raise UserError(f"no run folder at {path}: name an existing run, as listed under runs/")
        missing = [name for name in ("manifest.json", "results.jsonl") if not (path / name).is_file()]
        missing += [name for name in ("blobs",) if not (path / name).is_dir()]
        if missing:
            raise UserError(f"{path} is not a whole run folder: it lacks {', '.join(missing)}")
        store = cls(path, writable=writable)
        try:
            store.manifest()
            store._load(skip_broken=skip_broken)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            release(self.folder, self._lock)
            self._lock = None
        self.writable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.folder.name

    # manifest and events

    def write_manifest(self, manifest: RunManifest) -> None:
        """Writes manifest.json; a run without one cannot be opened again."""
        with room_needed(self.folder, resumable=True):
            write_atomically(self.folder / "manifest.json", manifest.model_dump_json(indent=1).encode())

    def manifest(self) -> RunManifest:
        """The run's manifest; UserError where the file is not ours or of another schema."""
        path = self.folder / "manifest.json"
        try:
            return RunManifest.model_validate_json(path.read_bytes())
        except ValidationError as error:
            remedy = "name another run, or start a new one"
            raise UserError(f"{path} is not a Warpsmith manifest: {_first_line(error)}; {remedy}") from error

    def event(self, kind: str, **data: Any) -> Event:
        """Appends to events.jsonl and returns the event."""
        event = Event(at=utc_now(), kind=kind, data=data)
        with room_needed(self.folder, resumable=True):
            self._events.append(event.model_dump_json())
        return event

    def events(self) -> list[Event]:
        """All events so far."""
        return [Event.model_validate_json(line) for line in self._events.lines()]

    # blobs and candidates

    def put_blob(self, data: bytes) -> str:
        """Stores bytes under their sha256 and returns it."""
        digest = hashlib.sha256(data).hexdigest()
        self._put(self.folder / "blobs" / digest, data)
        return digest

    def get_blob(self, digest: str) -> bytes:
        """The bytes of a blob; UserError where it is missing or damaged."""
        path = self.folder / "blobs" / digest
        data = _read(path)
        if hashlib.sha256(data).hexdigest() != digest:
            raise UserError(f"{path} is damaged: its content does not have the hash it is named by")
        return data

    def put_candidate(self, candidate: Candidate) -> str:
        """Stores source, plan and slot values under the candidate's content hash, which is returned."""
        self._put(self.folder / "blobs" / f"{candidate.id}.json", candidate.model_dump_json().encode())
        return candidate.id

    def get_candidate(self, candidate_id: str) -> Candidate:
        """A stored candidate; UserError where it is missing or damaged."""
        path = self.folder / "blobs" / f"{candidate_id}.json"
        try:
            candidate = Candidate.model_validate_json(_read(path))
        except ValidationError as error:
            raise UserError(f"{path} is damaged: {_first_line(error)}") from error
        if candidate.id != candidate_id:
            raise UserError(f"{path} is damaged: its content has the hash {candidate.id}")
        return candidate

    def has_candidate(self, candidate_id: str) -> bool:
        """Whether a candidate of this content hash is stored."""
        return (self.folder / "blobs" / f"{candidate_id}.json").exists()

    def _put(self, path: Path, data: bytes) -> None:
        if not path.exists():
            with room_needed(self.folder, resumable=True):
                write_atomically(path, data)

    # outcomes

    def append_outcome(self, outcome: Outcome, level: Level = "full") -> None:
        """Adds a line to results.jsonl and forces it to the disk. Only level `screen` has status
        `screened`."""
        if outcome.status == "screened" and level != "screen":
            raise ValueError("a full verdict never has the status `screened`")
        with room_needed(self.folder, resumable=True):
            self._results.append(outcome.model_dump_json())
            self._ledger.add(outcome, level)
        self._outcomes.setdefault(outcome.candidate, []).append(outcome)

    def outcome(self, candidate_id: str, level: Level | None = None) -> Outcome | None:
        """The latest outcome that answers `level`: for `full` a screening pass is not enough, while any
        failure of the candidate's own is; an infrastructure error answers no level. None: any latest
        outcome."""
        for outcome in reversed(self._outcomes.get(candidate_id, [])):
            if level is None or answers(outcome, level):
                return outcome
        return None

    def outcomes(self) -> list[Outcome]:
        """The latest outcome of every candidate, in the order of first appearance."""
        return [lines[-1] for lines in self._outcomes.values()]

    def best(self) -> Outcome | None:
        """The fastest outcome with status `ok`; where none was measured, the lowest estimate."""
        full = [o for o in (self.outcome(c, "full") for c in self._outcomes) if o and o.status == "ok"]
        measured = [outcome for outcome in full if outcome.time_us is not None]
        costed = [o for o in (measured or full) if o.cost_us is not None]
        return min(costed, key=lambda o: o.cost_us or 0.0, default=full[0] if full else None)

    def lines(self) -> Iterator[Outcome]:
        """Every outcome in the order in which candidates first appeared, a candidate's own in the order of time."""
        for outcomes in self._outcomes.values():
            yield from outcomes

    def _load(self, *, skip_broken: bool = False) -> None:
        if self.writable:
            self._results.mend()
            self._events.mend()
            self._sweep()
        for number, line in self._results.numbered():
            try:
                outcome = Outcome.model_validate_json(line)
            except ValidationError as error:
                fault = f"{self.folder / 'results.jsonl'}:{number} is not an outcome of this version"
                if not skip_broken:
                    raise UserError(
                        f"{fault} ({_first_line(error)}): remove that line, and its candidate is evaluated again "
                        "where it is needed"
                    ) from error
                self.broken.append(f"{fault} ({_first_line(error)}); it was left out")
                continue
            self._outcomes.setdefault(outcome.candidate, []).append(outcome)
        if self.writable:
            with room_needed(self.folder, resumable=True):
                self._ledger.complete(self.lines())

    def _sweep(self) -> None:
        """Removes what a killed writer had begun: the lock says that there is no other."""
        for folder in (self.folder, self.folder / "blobs", self.folder / "best"):
            for path in folder.glob(f".*{_TEMPORARY}"):
                path.unlink(missing_ok=True)

    # best/

    def write_best(self, candidate: Candidate, outcome: Outcome, model_new: str | None = None) -> Path:
        """Writes best/ (kernel.cu, launch.json, verdict.json and, where given, model_new.py)."""
        best = self.folder / "best"
        with room_needed(self.folder, resumable=True):
            best.mkdir(exist_ok=True)
            write_atomically(best / "kernel.cu", candidate.source.encode())
            write_atomically(best / "launch.json", candidate.plan.model_dump_json(indent=1).encode())
            write_atomically(best / "verdict.json", outcome.model_dump_json(indent=1).encode())
            if model_new is not None:
                write_atomically(best / "model_new.py", model_new.encode())
        return best


def answers(outcome: Outcome, level: Level) -> bool:
    """Whether a stored outcome makes another evaluation at this level needless."""
    if outcome.status == "infrastructure_error":
        return False
    return level == "screen" or outcome.status != "screened"


def release(folder: Path, handle: int) -> None:
    """Gives a folder's lock back."""
    os.close(handle)
    _held.discard(folder.resolve())


def acquire(folder: Path) -> int:
    """Locks a run folder for this process. The lock goes with the process, however that ends. UserError where another
    one has it."""
    key = folder.resolve()
    busy = UserError(f"{folder} is being written by another process: wait for it, or start a new run")
    if key in _held:
        raise busy
    handle = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise busy from error
    _held.add(key)
    return handle


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing from the run folder") from error


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        return f"{place}: {first['msg']}"
    return str(error).splitlines()[0]
