"""Kernels that were seen to hang: kept on disk, told again with their first evidence, never run again."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from pydantic import ValidationError

from warpsmith import __version__
from warpsmith.kernels.records import Candidate, Failure, Outcome, content_hash
from warpsmith.tools.runs.store import write_atomically
from warpsmith.tools.target import Target

_SCHEMA = 1


class HangCache:
    """Hangs of one problem on one kind of device. Another problem's data may lead the same kernel to its end, so the
    problem is part of the key; so are source and launch plan (the candidate's id)."""

    def __init__(self, folder: Path, *, problem_hash: str, target: Target) -> None:
        self._folder = folder / "hangs"
        self._about = [_SCHEMA, __version__, problem_hash, target.kind, target.arch, target.backend]

    def get(self, candidate: Candidate) -> Failure | None:
        """The failure that was seen, or None for a kernel not known to hang."""
        try:
            failure = Failure.model_validate(json.loads(self._path(candidate).read_text())["failure"])
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None
        return failure.model_copy(update={"message": f"{failure.message} (seen before, not run again)"})

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        """Keeps a hang that the launcher or the emulator saw itself. A deadline of the whole process does not count:
        a busy machine passes it as well. A cache that cannot be written is no reason to stop."""
        failure = outcome.failure
        if outcome.status != "hang" or failure is None or failure.stage not in ("launch", "emulate"):
            return
        path = self._path(candidate)
        document = {"candidate": candidate.id, "failure": failure.model_dump(mode="json")}
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(document).encode())

    def _path(self, candidate: Candidate) -> Path:
        key = content_hash([*self._about, candidate.id])
        return self._folder / key[:2] / f"{key}.json"
