"""`warpsmith baseline`: eager, torch.compile and the naive kernel, timed on one GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from warpsmith.app.display import Display
from warpsmith.app.ending import interrupt_says
from warpsmith.app.wording import duration
from warpsmith.app.workbench import Bench, open_bench, roof_for, specs_of
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.measurement.baseline import MODES, Baselines, measure_baselines

NOT_BY_DEFAULT = "max-autotune"


@dataclass(frozen=True, slots=True)
class BaselineSettings:
    """Flags of `warpsmith baseline`."""

    problem: str
    device: str
    arch: str | None
    overrides: Mapping[str, str]
    inputs: str | None
    mode: str
    max_autotune: bool
    jobs: int | None = None


def run_baseline(settings: BaselineSettings, display: Display) -> int:
    """Exit code 0; EnvironmentError_ (4) without a GPU, since a time of another device would mislead."""
    with interrupt_says("no time is told before all are measured; run the command again"):
        bench = open_bench(
            settings.problem, device=settings.device, arch=settings.arch, overrides=settings.overrides,
            inputs=settings.inputs, mode=settings.mode, jobs=settings.jobs,
        )  # fmt: skip
        display.phase(f"timing baselines on {bench.machine.label}")
        modes = [mode for mode in MODES if settings.max_autotune or mode != NOT_BY_DEFAULT]
        measured = asyncio.run(measure_baselines(bench.problem.ref, bench.machine.target, modes=modes))
        naive = _naive(bench, display)
    document = measured.model_dump(mode="json") | {"naive": naive.model_dump(mode="json") if naive else None}
    display.result(document, _text(measured, naive))
    return 0


def _naive(bench: Bench, display: Display) -> Outcome | None:
    """The full verdict on the preferred family's default slots; None where no family covers the problem."""
    try:
        specs = specs_of(bench)
    except NotYetError as error:
        display.note(f"no naive kernel: {error}")
        return None
    spec = next(iter(specs.values()))
    evaluator = bench.evaluator(specs, None, roof_for(specs, bench.machine))
    return asyncio.run(_verdict(evaluator, spec.emit(spec.naive)))


async def _verdict(evaluator: Evaluator, candidate: Candidate) -> Outcome:
    async with evaluator:
        return (await evaluator.evaluate([candidate], level="full"))[0]


def _text(measured: Baselines, naive: Outcome | None) -> str:
    lines = [f"{measured.device}, timed by {measured.method}"]
    rows = dict(measured.times_us)
    if naive is not None and naive.time_us is not None:
        rows[f"naive {naive.family} kernel"] = naive.time_us
    width = max(map(len, rows), default=0)
    lines += [
        f"  {name:<{width}}  {duration(q.p50):>10}  (p10 {duration(q.p10)}, p90 {duration(q.p90)}, n={q.n})"
        for name, q in rows.items()
    ]
    return "\n".join([*lines, *(f"  note: {note}" for note in measured.notes)])
