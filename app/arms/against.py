"""Candidates that somebody else wrote, judged beside the arms: one folder a problem, or one for the only problem."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpsmith.app.arms.scores import Search, cost_of
from warpsmith.app.display import Display, QuietDisplay
from warpsmith.app.judge import JudgeSettings, run_judge
from warpsmith.app.suite.records import SuiteProblem
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Outcome

KERNEL = "kernel.cu"


def named(folders: Sequence[str], policies: Sequence[str]) -> dict[str, Path]:
    """What each folder of candidates is called beside the policies: its name, or as much of its path as tells it from
    the others. UserError for one that is named twice."""
    paths = [Path(one) for one in folders]
    if len(set(paths)) < len(paths):
        raise UserError("--against names a folder twice: name each once")
    found = {}
    for path in paths:
        others = [other for other in paths if other != path]
        depth = 1
        while depth < len(path.parts) and (
            _end(path, depth) in policies or any(_end(other, depth) == _end(path, depth) for other in others)
        ):
            depth += 1
        found[_end(path, depth)] = path
    return found


def _end(path: Path, depth: int) -> str:
    return "/".join(path.parts[-depth:])


def candidates_in(folder: Path, problems: Sequence[SuiteProblem]) -> dict[str, Path]:
    """Key of a problem -> the folder with the candidate for it. A folder below `folder` fits by the key, the name or
    the file's name. UserError where nothing fits."""
    if (folder / KERNEL).is_file():
        if len(problems) != 1:
            raise UserError(
                f"--against {folder} is one candidate and the suite has {len(problems)} problems: name a folder that "
                "holds one folder a problem, named like it, or one problem"
            )
        return {problems[0].key: folder}
    found = {}
    for problem in problems:
        names = (problem.key, problem.name, Path(problem.path.partition(":")[0]).stem)
        fitting = [folder / name for name in names if (folder / name / KERNEL).is_file()]
        if fitting:
            found[problem.key] = fitting[0]
    if not found:
        raise UserError(f"--against {folder}: no {KERNEL} in it, and no folder below it is named like a problem")
    return found


def judged(
    name: str, candidates: Mapping[str, Path], problems: Sequence[SuiteProblem], how: Mapping[str, Any],
    display: Display,
) -> Iterator[tuple[Search, str]]:  # fmt: skip
    """A search of one evaluation for each candidate, with how its verdict ended."""
    by_key = {problem.key: problem for problem in problems}
    for key, folder in candidates.items():
        display.phase(f"{name}: judging {folder}")
        heard = _Verdict()
        problem = by_key[key]
        settings = JudgeSettings(
            problem=problem.path, candidate=folder, overrides=problem.overrides, inputs=None, **how
        )  # fmt: skip
        with contextlib.suppress(UserError), heard:
            run_judge(settings, heard)
        outcome = heard.outcome
        cost = cost_of(outcome) if outcome is not None else None
        yield Search(name, 0, key, (cost,)), outcome.status if outcome is not None else "refused"


class _Verdict(QuietDisplay):
    """Keeps the verdict instead of showing it."""

    outcome: Outcome | None = None

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The outcome."""
        self.outcome = Outcome.model_validate(document)
