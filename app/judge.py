"""`warpsmith judge`: a full verdict on a candidate folder that someone else wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warpsmith.app.audit import audit_problem
from warpsmith.app.display import Display
from warpsmith.app.wording import verdict_text
from warpsmith.app.workbench import Bench, open_bench
from warpsmith.kernels.records import Outcome
from warpsmith.tools.judge import judge, load_candidate


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Flags of `warpsmith judge`."""

    problem: str
    candidate: Path
    device: str
    arch: str | None
    overrides: Mapping[str, str]
    inputs: str | None
    mode: str


def run_judge(settings: JudgeSettings, display: Display) -> int:
    """Exit code 0 for `ok`, 1 for any other verdict. The folder is checked before the problem is read."""
    load_candidate(settings.candidate)
    display.phase(f"reading {settings.problem}")
    bench = open_bench(
        settings.problem, device=settings.device, arch=settings.arch, overrides=settings.overrides,
        inputs=settings.inputs, mode=settings.mode,
    )  # fmt: skip
    display.phase(f"judging {settings.candidate} on {bench.machine.label}")
    outcome = asyncio.run(_verdict(bench, settings.candidate, display))
    display.result(outcome.model_dump(mode="json"), verdict_text(outcome))
    return 0 if outcome.status == "ok" else 1


async def _verdict(bench: Bench, folder: Path, display: Display) -> Outcome:
    async with bench.evaluator({}, None, None) as evaluator:
        outcome = await judge(evaluator, bench.problem, folder)
        await audit_problem(evaluator, None, display)
        return outcome
