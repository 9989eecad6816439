"""What is looked at before a suite run is gone on with: whether its problems' files are there, and are as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from warpsmith.app.suite.records import ProblemRow, SuiteManifest, SuiteProblem
from warpsmith.app.wording import count
from warpsmith.kernels.errors import UserError

_SHOWN = 3


def file_of(target: str) -> Path:
    """The file of `file.py` or `file.py:callable`."""
    head, colon, _ = target.rpartition(":")
    return Path(head) if colon and head.endswith(".py") else Path(target)


def digest(path: str) -> str | None:
    """Of the problem's file as it is now; None where it cannot be read."""
    try:
        return hashlib.sha256(file_of(path).read_bytes()).hexdigest()
    except OSError:
        return None


def require_files(problems: Sequence[SuiteProblem], folder: Path, command: str) -> None:
    """UserError where files of problems that are to be taken up do not lie where the suite run says."""
    lost = [problem.path for problem in problems if not file_of(problem.path).is_file()]
    if lost:
        more = ", ..." if len(lost) > _SHOWN else ""
        raise UserError(
            f"{count(len(lost), 'file')} of open problems cannot be found ({', '.join(lost[:_SHOWN])}{more}): name the "
            f"folder where the problems lie now, `warpsmith {command} FOLDER --resume {folder}`"
        )


def changed(manifest: SuiteManifest, rows: Mapping[str, ProblemRow], again: Collection[str]) -> Iterator[str]:
    """A sentence for each problem that is done, is not taken up again, and whose file is not what it was."""
    for problem in manifest.problems:
        if problem.key not in rows or problem.key in again or problem.digest is None:
            continue
        now = digest(problem.path)
        if now is not None and now != problem.digest:
            yield f"{problem.key}: its file changed since the suite was made; its row is kept, of the file as it was"


def cannot_go_on(problem: SuiteProblem, home: Path, why: str) -> str:
    """What is told of a problem whose run does not let itself be gone on with."""
    what = why.partition(": leave --resume out")[0]
    return (
        f"{problem.key} is not gone on with, its run is kept: {what}. For this problem alone: mend that and "
        f"--resume again, or move {home} away to begin it anew"
    )
