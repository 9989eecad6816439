"""The best of a trained model's first eight replies, judged anew on the device, beside the best recorded combination
and the family's own first choice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from learn_setup import Lines, Place, Study

from warpsmith.agents.space import SpecSpace
from warpsmith.app.workbench import Bench, open_bench, roof_for, specs_of
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.slots import Values
from warpsmith.rl.tasks.spaces import RecordedSpace


def live_all(lines: Lines, study: Study, place: Place, *, seed: int, seconds: float, device: str) -> None:
    """Problem by problem until the time is over; what was judged is not judged again."""
    began = time.monotonic()
    tables = place.tasks(study.unseen, study, advised=False)
    for problem, task in tables.items():
        answered = lines.of("replies", arm="trained", seed=seed, problem=problem)
        if not answered or lines.of("live", problem=problem, seed=seed):
            continue
        if time.monotonic() - began > seconds:
            print(f"{problem}: no time is left", flush=True)
            continue
        path = place.problems / f"{problem}.py"
        found = _judged(path, device, task.space, first_replies(answered[-1], study.evaluations))
        lines.add("live", problem=problem, seed=seed, split=study.split(problem), **found)
        print(f"{problem}: {found['says']}", flush=True)


def first_replies(answered: Mapping[str, Any], count: int) -> list[Values]:
    """The first different replies that were drawn."""
    return [answered["values"][at] for at in list(dict.fromkeys(answered["drawn"]))[:count]]


def _judged(path: Path, device: str, recorded: RecordedSpace, replies: Sequence[Values]) -> dict[str, Any]:
    """Quick checks of the replies, then full verdicts on the fastest of them, the recorded best and the default."""
    began = time.monotonic()
    bench = open_bench(str(path), device=device, arch=None, overrides={}, inputs=None, mode="eval", jobs=None)
    spec = specs_of(bench)[recorded.name]
    names = [slot.name for slot in recorded.table.slots]
    costs = {key: entry.cost_us for key, entry in recorded.table.entries.items() if entry.cost_us is not None}
    best = dict(zip(names, min(costs, key=lambda key: costs[key]), strict=True))
    told = [spec.emit(recorded.whole(one)) for one in replies]
    others = [spec.emit(recorded.whole(best)), spec.emit(SpecSpace(spec).sensible())]
    with bench.compiler:
        screened, full = asyncio.run(_verdicts(bench, spec, told, others))
    found: dict[str, Any] = {
        "device": bench.machine.label, "screened": [_told(one) for one in screened],
        **{name: _told(one) for name, one in zip(("reply", "recorded", "default"), full, strict=True)},
        "recorded_us": costs[tuple(best[name] for name in names)], "seconds": time.monotonic() - began,
    }  # fmt: skip
    shown = ", ".join(
        f"{name} {found[name]['status']} {found[name]['us']}" for name in ("reply", "recorded", "default")
    )
    return found | {"says": f"{shown} us in {found['seconds']:.1f} s"}


async def _verdicts(
    bench: Bench, spec: KernelSpec, replies: Sequence[Candidate], others: Sequence[Candidate]
) -> tuple[Sequence[Outcome], list[Outcome]]:
    """Of the replies the quick check, in order; in full the fastest of them, then the others."""
    specs = {spec.family.name: spec}
    evaluator = bench.evaluator(specs, None, roof_for(specs, bench.machine))
    # Whether it is right and how it stands to the others takes no torch.compile.
    evaluator.baselines = ("eager",)
    async with evaluator:
        screened = await evaluator.evaluate(list(replies), level="screen")
        right = [at for at, one in enumerate(screened) if one.correct and one.cost_us is not None]
        fastest = min(right, key=lambda at: screened[at].cost_us or 0.0) if right else 0
        wanted = {one.id: one for one in (replies[fastest], *others)}
        full = dict(zip(wanted, await evaluator.evaluate(list(wanted.values()), level="full"), strict=True))
    return screened, [full[one.id] for one in (replies[fastest], *others)]


def _told(outcome: Outcome) -> dict[str, Any]:
    """What the page says of a verdict."""
    eager = (outcome.speedup or {}).get("eager")
    return {
        "candidate": outcome.candidate, "status": outcome.status, "us": outcome.cost_us,
        "measured": outcome.time_us is not None,
        "speedup": eager.model_dump(mode="json") if eager is not None else None,
        "failure": outcome.failure.message if outcome.failure is not None else None,
    }  # fmt: skip
