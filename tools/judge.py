"""A full verdict on a candidate that someone else wrote: a folder with kernel.cu and launch.json."""

from __future__ import annotations

from pathlib import Path

from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import Outcome
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.plan_file import check_plan, load_candidate, scratch_limit


async def judge(evaluator: Evaluator, problem: Problem, folder: Path) -> Outcome:
    """Loads a candidate folder, checks that its plan fits the problem, and gives the full verdict."""
    candidate = load_candidate(folder)
    limit = scratch_limit(evaluator.target.kind)
    known = evaluator.foreign.operands if evaluator.foreign is not None else None
    check_plan(candidate.plan, problem, folder / "launch.json", scratch_bytes=limit, operands=known)
    return (await evaluator.evaluate([candidate], level="full"))[0]
