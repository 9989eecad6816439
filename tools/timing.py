"""How fast is a candidate? Paired, interleaved samples on one GPU; statistics are made in another
process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from warpsmith.kernels.records import CompileReport, Failure, LaunchPlan, Record, TimingReport
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.tools.contenders import Contender, candidate_contender, module_contenders
from warpsmith.tools.input_sets import InputSet
from warpsmith.tools.sampling import Sampler
from warpsmith.tools.session import Session, session_for
from warpsmith.tools.statistics import half_width, quantiles, speedup
from warpsmith.tools.verify import compare_output

CANDIDATE = "candidate"
SHORT_US = 20.0
"""Kernels below this are timed by replaying a CUDA graph of many launches: events alone would add to
them."""
_EARLY_STOP = 3.0
_MIN_PAIRS, _MAX_PAIRS = 30, 100
_SCREEN_SAMPLES = 10
_ENOUGH = 0.01


class TimingRequest(Record):
    """What is to be timed."""

    level: Literal["screen", "full"]
    baselines: tuple[str, ...] = ("eager", "compile")
    """`eager`, or modes of torch.compile: `compile` (default mode), `max-autotune`, `reduce-overhead`."""
    incumbent_us: float | None = None
    """Screening stops early on a candidate three times slower than this."""
    budget_s: float = 0.6
    """Sampling ends after this, however wide the interval is."""
    warmup_s: float = 0.1


class Samples(Record):
    """Raw microseconds by contender; position i of each was taken in the same round."""

    device: str
    method: str
    samples: dict[str, tuple[float, ...]]
    notes: tuple[str, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    """Spent on this candidate."""
    baselines_s: float = 0.0
    """Spent on making the baselines, torch.compile above all: once a process, whatever the candidate."""


def run_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job. Payload: `problem`, `target`, `plan`, `report`, `request`. Gives Samples."""
    session = session_for(payload)
    plan = LaunchPlan.model_validate(payload["plan"])
    report = CompileReport.model_validate(payload["report"])
    request = TimingRequest.model_validate(payload["request"])
    return time_candidate(session, plan, report, request).model_dump(mode="json")


def time_candidate(session: Session, plan: LaunchPlan, report: CompileReport, request: TimingRequest) -> Samples:
    """Times a verified candidate against its baselines, alone on the device, and checks its last output."""
    backend = session.backend
    assert isinstance(backend, CudaBackend)
    began = time.perf_counter()
    inputs = session.input_set("shipped") or session.input_set("normal")
    if inputs is None:
        lacking = Failure(stage="infrastructure", kind="no_reference", message="no inputs to time on")
        return Samples(device=backend.label, method="none", samples={}, failure=lacking)
    loaded = backend.load(report, plan)
    own = candidate_contender(CANDIDATE, backend, loaded, inputs, session)
    notes: list[str] = []
    others: list[Contender] = []
    baselines_s = 0.0
    if request.level == "full":
        before = time.perf_counter()
        others, notes = module_contenders(session, inputs, request.baselines)
        baselines_s = time.perf_counter() - before
    with session.alone():
        sampler = Sampler(backend, [own, *others])
        failure = sampler.warm_up(request.warmup_s if request.level == "full" else request.warmup_s / 10)
        if failure is None:
            failure = _sample(sampler, request)
    if failure is None:
        failure = _recheck(own, inputs)
    return Samples(
        device=backend.label, method=sampler.method, notes=(*notes, *sampler.notes), failure=failure,
        samples={name: tuple(values) for name, values in sampler.samples.items()},
        seconds=time.perf_counter() - began - baselines_s, baselines_s=baselines_s,
    )  # fmt: skip


def _sample(sampler: Sampler, request: TimingRequest) -> Failure | None:
    """Rounds until the interval is narrow enough or the budget ends."""
    deadline = time.perf_counter() + request.budget_s
    taken = sampler.samples[CANDIDATE]
    failure = sampler.choose_method(SHORT_US)
    while failure is None:
        failure = sampler.round()
        if failure is not None:
            break
        if request.level == "screen":
            slow = request.incumbent_us is not None and min(taken) > _EARLY_STOP * request.incumbent_us
            if len(taken) >= _SCREEN_SAMPLES or slow:
                return failure
        elif len(taken) >= _MAX_PAIRS or (len(taken) >= _MIN_PAIRS and _settled(sampler.samples)):
            return failure
        if time.perf_counter() > deadline:
            return failure
    return failure


def _settled(samples: Mapping[str, Sequence[float]]) -> bool:
    """Whether every ratio's interval is within one per cent."""
    own = samples[CANDIDATE]
    return all(half_width(speedup(values, own)) < _ENOUGH for name, values in samples.items() if name != CANDIDATE)


def _recheck(own: Contender, inputs: InputSet) -> Failure | None:
    """The outputs of the last timed call, against the references."""
    for index, value in enumerate(own.checked_outputs()):
        found = compare_output(inputs, index, value)
        if found.problem is not None:
            message = f"out{index} after timing: {found.problem}"
            return Failure(stage="time", kind="mismatch", message=message)
    if inputs.changed():
        return Failure(stage="time", kind="inputs_changed", message="inputs were changed while timing")
    return None


def timing_report(raw: Samples) -> TimingReport | None:
    """Statistics of raw samples; None where the candidate was not timed."""
    own = raw.samples.get(CANDIDATE)
    if not own or raw.failure is not None:
        return None
    others = {name: values for name, values in raw.samples.items() if name != CANDIDATE and values}
    return TimingReport(
        device=raw.device,
        time_us=quantiles(own),
        baseline_us={name: quantiles(values) for name, values in others.items()},
        speedup={name: speedup(values, own) for name, values in others.items()},
        seconds=raw.seconds,
        method=raw.method,
    )
