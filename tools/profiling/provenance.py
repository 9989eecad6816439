"""Whose kernels do the work: the device time of each step of a launch plan, measured with events around every step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from warpsmith.kernels.records import CompileReport, Failure, LaunchPlan, LibraryStep, Provenance, Record
from warpsmith.sandbox.cuda.arguments import ArgumentError
from warpsmith.sandbox.cuda.backend import CudaBackend, LoadedCuda
from warpsmith.sandbox.cuda.bound import Bound, Launch, LaunchRefused
from warpsmith.sandbox.cuda.library import LibraryError
from warpsmith.tools.measurement.contenders import stage_for
from warpsmith.tools.measurement.stage import Stage
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.session import Session, session_for

LIBRARY_BELOW = 0.1
"""Own kernels that take less of the device time than this decorate a library's work."""
_ROUNDS = 9
_BUDGET_S = 1.0
_HOST_US = 60.0
"""What enqueueing one step takes the host at most, as a rule; the device is kept busy for so long before them."""
_AT_ONCE = 320
"""Steps that are enqueued behind one spin: with their events fewer than the thousand launches, about, that a stream
takes before the host has to wait."""
_POISON = 0xFF
_AGREES = (0.5, 1.5)
"""Steps that add up to less or more of the timed whole than this were not measured under the same conditions."""

_torch_cuda: Any = torch.cuda


class StepSamples(Record):
    """Raw device microseconds of each step of a plan, one row a round; made in the process that has the GPU."""

    device: str
    rows: tuple[tuple[float, ...], ...]
    """Time between the events before and after each step."""
    empty: tuple[float, ...]
    """Time between two events with nothing in between."""
    failure: Failure | None = None
    seconds: float = 0.0


class Attribution(Record):
    """How the device time of a plan divides among its steps."""

    own_share: float
    steps_us: tuple[float, ...]


def needs_measuring(plan: LaunchPlan) -> bool:
    """Whether there is anything to divide: a single kernel of the candidate's own takes all the time there is."""
    return len(plan.steps) > 1 or any(isinstance(step, LibraryStep) for step in plan.steps)


def run_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job. Payload: `problem`, `target`, `plan`, `report`. Gives StepSamples."""
    session = session_for(payload)
    plan = LaunchPlan.model_validate(payload["plan"])
    report = CompileReport.model_validate(payload["report"])
    return sample_steps(session, plan, report).model_dump(mode="json")


def sample_steps(session: Session, plan: LaunchPlan, report: CompileReport) -> StepSamples:
    """Runs a verified plan a few times as in timing, alone on the device, with events of ours between its steps."""
    backend = session.cuda()
    began = time.perf_counter()
    inputs = session.input_set("shipped") or session.input_set("normal")
    if inputs is None:
        lacking = Failure(stage="infrastructure", kind="no_reference", message="no inputs to profile on")
        return StepSamples(device=backend.label, rows=(), empty=(), failure=lacking)
    loaded = backend.load(report, plan)
    session.expect(plan)
    rows: list[tuple[float, ...]] = []
    empty: list[float] = []
    failure: Failure | None = None
    with session.alone(), torch.cuda.stream(backend.stream):
        stage = stage_for(session, inputs, short=False)
        try:
            bound = _bound(loaded, inputs, stage)
            # The first round warms up: clocks, caches of the driver, workspaces of the libraries.
            for turn in range(_ROUNDS + 1):
                loaded.refresh_scratch(_POISON)
                stage.restore()
                stage.clean(forget=True)
                failure = _round(backend, bound, rows, empty)
                if failure is not None or (turn and time.perf_counter() - began > _BUDGET_S):
                    break
        except (LaunchRefused, ArgumentError, LibraryError) as error:
            refused = Failure(stage="launch", kind="launch_config", message=str(error))
            failure = backend.finish() or refused
        except RuntimeError as error:
            failure = backend.ruined(error)
    return StepSamples(
        device=backend.label, rows=tuple(rows[1:]), empty=tuple(empty[1:]), failure=failure,
        seconds=time.perf_counter() - began,
    )  # fmt: skip


def _bound(loaded: LoadedCuda, inputs: InputSet, stage: Stage) -> Bound:
    """The plan on the stage's first place, its load-time steps done."""
    named = {f"in{n}": value for n, value in enumerate(stage.arguments[0])}
    parameters = {name: value for name, value in inputs.arguments().items() if name.startswith("param:")}
    bound = loaded.bind({**named, **parameters, **stage.outputs[0].named()})
    loaded.fill_scratch(_POISON)
    bound.prepare()
    loaded.keep_prepared()
    return bound


def _round(backend: CudaBackend, bound: Bound, rows: list[tuple[float, ...]], empty: list[float]) -> Failure | None:
    """One run."""
    steps = bound.steps
    runs = [_enqueued(backend, bound, steps[first : first + _AT_ONCE]) for first in range(0, len(steps), _AT_ONCE)]
    failure = backend.finish()
    if failure is None:
        spans = [[1000.0 * float(a.elapsed_time(b)) for a, b in pairwise(events)] for events in runs]
        empty.append(statistics.median(first for first, *_ in spans))
        rows.append(tuple(us for _, *rest in spans for us in rest))
    return failure


def _enqueued(backend: CudaBackend, bound: Bound, steps: Sequence[Launch]) -> list[Any]:
    """Enqueues some steps and gives the events between them, two before the first. A spin keeps the device busy while
    the host enqueues, so that no gap of the host's counts as a step's time."""
    events = [_torch_cuda.Event(enable_timing=True) for _ in range(len(steps) + 2)]
    clock_khz = float(getattr(torch.cuda.get_device_properties(backend.torch_device), "clock_rate", 2_000_000))
    _torch_cuda._sleep(int(_HOST_US * (len(steps) + 2) * clock_khz / 1e3))
    events[0].record()
    events[1].record()
    for step, after in zip(steps, events[2:], strict=True):
        bound.run_step(step)
        after.record()
    return events


def attribute(plan: LaunchPlan, samples: StepSamples) -> Attribution | None:
    """Medians by step and the own kernels' share of their sum. None where a record is missing: a share of what was
    recorded would not be a share of what ran."""
    zeroed = [buffer for buffer in plan.buffers.values() if buffer.init == "zero"]
    wanted = len(zeroed) + len(plan.steps)
    if samples.failure is not None or not samples.rows or any(len(row) != wanted for row in samples.rows):
        return None
    overhead = statistics.median(samples.empty) if samples.empty else 0.0
    medians = [max(0.0, statistics.median(column) - overhead) for column in zip(*samples.rows, strict=True)]
    total = sum(medians)
    if total <= 0:
        return None
    # Zeroing scratch is the candidate's own doing: it counts as own work, told with no step of its own.
    own = sum(medians[: len(zeroed)])
    steps_us = medians[len(zeroed) :]
    own += sum(us for step, us in zip(plan.steps, steps_us, strict=True) if not isinstance(step, LibraryStep))
    return Attribution(own_share=own / total, steps_us=tuple(steps_us))


def measured_provenance(declared: Provenance, own_share: float | None) -> Provenance:
    """A plan whose own kernels hardly matter is the library's, whatever it declares."""
    if declared == "hybrid" and own_share is not None and own_share < LIBRARY_BELOW:
        return "library"
    return declared


def disagreement(steps_us: Sequence[float], timed_us: float, *, graph: bool = False) -> str | None:
    """A warning where the steps do not add up to what the whole plan was timed at. One by one they take longer than in
    a graph, where less time passes between them."""
    total = sum(steps_us)
    if _AGREES[0] * timed_us <= total and (graph or total <= _AGREES[1] * timed_us):
        return None
    return f"the steps add up to {total:.2f} us on the device, the plan was timed at {timed_us:.2f} us"
