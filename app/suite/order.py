"""The order in which a suite's problems are taken up."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from warpsmith.app.suite.folder import SuiteFolder
from warpsmith.app.suite.records import SuiteManifest, SuiteProblem


def todo(folder: SuiteFolder, manifest: SuiteManifest, retry: Sequence[str]) -> list[SuiteProblem]:
    """Problems without an end, and those whose end is not taken for the last word, as `by_state` has them."""
    rows = folder.rows
    return by_state(folder, [p for p in manifest.problems if p.key not in rows or rows[p.key].status in retry])


def by_state(folder: SuiteFolder, problems: Sequence[SuiteProblem]) -> list[SuiteProblem]:
    """Those that have a run first; last those that an earlier call began and never had read: a file that does not
    return at import is not to keep the others waiting in every call."""
    begun = folder.begun()

    def place(problem: SuiteProblem) -> int:
        return 0 if folder.run_of(problem) is not None else 2 if problem.key in begun else 1

    return sorted(problems, key=place)


def mixed(problems: Sequence[SuiteProblem]) -> list[SuiteProblem]:
    """In an order of chance, the same every time: large ones, which stand side by side, would fill the memory."""
    return sorted(problems, key=lambda problem: hashlib.sha256(problem.key.encode()).digest())
