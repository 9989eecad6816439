"""How fast is a candidate? Paired, interleaved samples on one GPU; statistics are made in another
process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from pydantic import Field

from warpsmith.kernels.records import CompileReport, Failure, LaunchPlan, Record, Speedup, TimingReport
from warpsmith.sandbox.cuda.health import LIMITED, SLOWED
from warpsmith.tools.lease import companions
from warpsmith.tools.measurement.baseline_errors import baseline_errors
from warpsmith.tools.measurement.contenders import Contender, candidate_contender, module_contenders, stage_for
from warpsmith.tools.measurement.sampling import Check, Sampler
from warpsmith.tools.measurement.stage import Stage
from warpsmith.tools.measurement.statistics import half_width, quantiles, speedup
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.session import Session, session_for
from warpsmith.tools.verification.verify import compare_output

CANDIDATE = "candidate"
SHORT_US = 20.0
"""Kernels below this are timed by replaying a CUDA graph of many launches: events alone would add to
them."""
_EARLY_STOP = 1.3
_MIN_PAIRS, _MAX_PAIRS = 30, 100
_SCREEN_SAMPLES = 10
_SCREEN_LEAST, _SCREEN_CLOSE = 4, 0.01
"""Screening ends with this many samples where they lie within a per cent."""
NULL_BUDGET_S = 0.4
"""For timing a baseline against itself."""
_ENOUGH = 0.01
_UNSTEADY = 0.05
"""Half-width of a ratio's interval from which something seems to disturb the device: sampling goes on, in the hope that
it passes, and what is found is doubted where it does not."""
_LONGER = 5
"""Times the budget that sampling takes then at most."""
_FEWEST = 4
"""Samples that tell whether anything disturbs."""
_IN_PLACE = "timed on one set of inputs that stays where it is, for want of memory"


class TimingRequest(Record):
    """What is to be timed."""

    level: Literal["screen", "full"]
    baselines: tuple[str, ...] = ("eager", "compile")
    """`eager`, or modes of torch.compile: `compile` (default mode), `max-autotune`, `reduce-overhead`."""
    incumbent_us: float | None = None
    """Screening stops early on a candidate that is slower than this by a third."""
    budget_s: float = 0.6
    """Sampling ends after this, however wide the interval is."""
    warmup_s: float = 0.05
    """The mix runs at least so long, and three times that at most, before sampling."""


class DeviceState(Record):
    """What NVML said of the device between the samples."""

    sm_mhz: tuple[int, int]
    """Least and most."""
    memory_mhz: tuple[int, int]
    celsius: tuple[int, int]
    watts: tuple[float, float]
    reasons: tuple[str, ...] = ()
    """Why its clocks were below their best."""
    dropped_rounds: int = 0
    """Left out because the device was slowed down."""


class Samples(Record):
    """Raw microseconds by contender; position i of each was taken in the same round."""

    device: str
    method: str
    samples: dict[str, tuple[float, ...]]
    notes: tuple[str, ...] = ()
    failure: Failure | None = None
    state: DeviceState | None = None
    null_test: Speedup | None = None
    """A baseline against itself, taken once a process: how far this machine's figures can be believed."""
    overhead_us: float | None = None
    """What is read where nothing runs."""
    seconds: float = 0.0
    """Spent on this candidate."""
    baselines_s: float = 0.0
    """Spent on making the baselines, torch.compile above all: once a process, whatever the candidate."""
    baseline_errors: dict[str, float] = Field(default_factory=dict)
    """Of compiled baselines: the rms error of their outputs in units of eager's."""
    judge_peak_bytes: int | None = None
    """The most memory of the device that this process has held since it took up the problem."""
    baseline_peak_bytes: dict[str, int] = Field(default_factory=dict)
    """Of compiled baselines: the most that compiling and running it holds, alone with weights and inputs."""


def run_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job. Payload: `problem`, `target`, `plan`, `report`, `request`. Gives Samples."""
    session = session_for(payload)
    plan = LaunchPlan.model_validate(payload["plan"])
    report = CompileReport.model_validate(payload["report"])
    request = TimingRequest.model_validate(payload["request"])
    return time_candidate(session, plan, report, request).model_dump(mode="json")


def time_candidate(session: Session, plan: LaunchPlan, report: CompileReport, request: TimingRequest) -> Samples:
    """Times a verified candidate against its baselines, alone on the device; outputs of samples that chance picks
    and of the last one are checked."""
    backend = session.cuda()
    began = time.perf_counter() - session.waited_s
    with session.alone(shared=True):
        inputs = session.timed_set("full" if request.level == "full" else "quick")
    if inputs is None:
        lacking = Failure(stage="infrastructure", kind="no_reference", message="no inputs to time on")
        return Samples(device=backend.label, method="none", samples={}, failure=lacking)
    session.expect(plan)
    own = candidate_contender(CANDIDATE, backend.load(report, plan), inputs)
    notes: list[str] = []
    others: list[Contender] = []
    errors: dict[str, float] = {}
    baselines_s = 0.0
    if request.level == "full":
        before = time.perf_counter() - session.waited_s
        others, notes = module_contenders(session, inputs, request.baselines)
        errors = baseline_errors(session, inputs, request.baselines)
        baselines_s = time.perf_counter() - session.waited_s - before
    with session.alone():
        stage = stage_for(session, inputs, short=False, beside=[one.name for one in others])
        notes += [_IN_PLACE] if stage.in_place else []
        # Screening is no verdict: its last run is looked at, and no chance one beside it.
        checks = {} if request.level == "full" else {"checks": 0}
        sampler = Sampler(backend, [own, *others], stage, check=_checker(inputs), health=backend.health, **checks)
        del stage
        failure, overhead = _measure(session, inputs, sampler, request)
    with session.alone(shared=True):
        failure = failure or sampler.inspect()
        changed = failure is None and bool(inputs.changed())
    if changed:
        failure = Failure(stage="time", kind="inputs_changed", message="parameters were changed while timing")
    return Samples(
        device=backend.label, method=sampler.method, failure=failure,
        notes=(*notes, *sampler.notes, *_doubts(session.null_test, sampler)),
        samples={name: tuple(values) for name, values in sampler.samples.items()},
        state=_state(sampler), null_test=session.null_test, overhead_us=overhead,
        seconds=time.perf_counter() - session.waited_s - began - baselines_s, baselines_s=baselines_s,
        baseline_errors=errors, judge_peak_bytes=session.memory.judge_bytes,
        baseline_peak_bytes=dict(session.baseline_peaks) if session.memory.meter is not None else {},
    )  # fmt: skip


def _measure(
    session: Session, inputs: InputSet, sampler: Sampler, request: TimingRequest
) -> tuple[Failure | None, float | None]:
    """Warm-up, choice of method, null test, sampling, last check; and what an empty kernel reads."""
    share = 1.0 if request.level == "full" else 0.1
    failure = sampler.warm_up(request.warmup_s * share, 3 * request.warmup_s * share)
    if failure is not None:
        return failure, None
    shortest = sampler.probe()
    if isinstance(shortest, Failure):
        return shortest, None
    if shortest < SHORT_US:
        stage = stage_for(session, inputs, short=True, beside=list(sampler.samples))
        if len(stage.places) > 1:
            sampler.use_graphs(stage)
    overhead = None
    if request.level == "full":
        found = sampler.overhead_us()
        if isinstance(found, Failure):
            return found, None
        overhead = found
        failure = _null_test(session, inputs, sampler)
    sampler.look()
    failure = failure or _sample(sampler, request)
    sampler.look()
    return failure or sampler.last_look(), overhead


def _null_test(session: Session, inputs: InputSet, sampler: Sampler) -> Failure | None:
    """Once a process: the last contender against itself, under the same protocol."""
    if session.null_test is not None:
        return None
    backend, one = session.cuda(), sampler.contenders[-1]
    pair = [replace(one, name="first"), replace(one, name="second")]
    short = sampler.launches > 1
    trial = Sampler(backend, pair, stage_for(session, inputs, short=short), health=backend.health)
    if short:
        trial.use_graphs(stage_for(session, inputs, short=True))
    failure = rounds_until(trial, time.perf_counter() + NULL_BUDGET_S, "first")
    if failure is None and trial.samples["first"]:
        session.null_test = speedup(trial.samples["second"], trial.samples["first"])
    return failure


def _sample(sampler: Sampler, request: TimingRequest) -> Failure | None:
    """Rounds until the interval is narrow enough or the budget ends."""
    deadline = time.perf_counter() + request.budget_s
    if request.level == "full":
        return rounds_until(sampler, deadline, CANDIDATE, deadline + (_LONGER - 1) * request.budget_s)
    taken = sampler.samples[CANDIDATE]
    while True:
        failure = sampler.round()
        slow = bool(taken) and request.incumbent_us is not None and min(taken) > _EARLY_STOP * request.incumbent_us
        close = len(taken) >= _SCREEN_LEAST and max(taken) - min(taken) < _SCREEN_CLOSE * min(taken)
        enough = close or len(taken) >= _SCREEN_SAMPLES
        if failure is not None or enough or slow or time.perf_counter() > deadline:
            return failure


class Rounds(Protocol):
    """What takes samples of several contenders in turn."""

    @property
    def samples(self) -> Mapping[str, Sequence[float]]:
        """Microseconds by contender."""

    def round(self) -> Failure | None:
        """One more sample of each."""


def rounds_until(sampler: Rounds, deadline: float, own: str, latest: float | None = None) -> Failure | None:
    """Rounds until every ratio to `own` is known to a per cent, or time is up; until `latest` where ratios are so wide
    that something seems to disturb the device."""
    latest = deadline if latest is None else latest
    taken = sampler.samples[own]
    while True:
        failure = sampler.round()
        enough = len(taken) >= _MIN_PAIRS and _settled(sampler.samples, own)
        if failure is not None or enough or len(taken) >= _MAX_PAIRS:
            return failure
        now = time.perf_counter()
        steady = len(taken) >= _FEWEST and _settled(sampler.samples, own, _UNSTEADY)
        if now > latest or (now > deadline and steady):
            return None


def _settled(samples: Mapping[str, Sequence[float]], own: str, within: float = _ENOUGH) -> bool:
    """Whether every ratio's interval is within one per cent, or `within`."""
    return all(half_width(speedup(values, samples[own])) < within for name, values in samples.items() if name != own)


def _checker(inputs: InputSet) -> Check:
    """Judges what a timed run left: outputs, guard zones, inputs."""

    def check(stage: Stage, place: int) -> Failure | None:
        outputs = stage.outputs[place]
        for index, value in enumerate(outputs.tensors):
            found = compare_output(inputs, index, value)
            if found.problem is not None:
                message = f"out{index} of a timed run: {found.problem}"
                return Failure(stage="time", kind="mismatch", message=message)
        broken = outputs.broken_guards()
        if broken:
            names = ", ".join(f"out{index}" for index in broken)
            return Failure(stage="time", kind="guard", message=f"a timed run writes outside of {names}")
        if not stage.intact(place):
            return Failure(stage="time", kind="inputs_changed", message="inputs were changed by a timed run")
        return None

    return check


def _doubts(null_test: Speedup | None, sampler: Sampler) -> list[str]:
    """What speaks against the figures taken here."""
    found = []
    if null_test is not None and not (null_test.low - _ENOUGH <= 1 <= null_test.high + _ENOUGH):
        found.append(f"a baseline against itself gives {null_test.value:.3f} here: smaller differences mean nothing")
    if sampler.dropped:
        found.append(f"{len(sampler.dropped)} rounds left out: {', '.join(sorted(set(sampler.dropped)))}")
    if all(sampler.samples.values()) and not _settled(sampler.samples, CANDIDATE, _UNSTEADY):
        found.append("times vary from sample to sample: something else may have used the device")
    if sampler.backend.health.strangers() > companions():
        found.append("another process computes on this GPU: times may be longer than they should be")
    return found


def _state(sampler: Sampler) -> DeviceState | None:
    """The sampler's readings in short."""
    seen = sampler.readings
    if not seen:
        return None
    bits = 0
    for reading in seen:
        bits |= reading.reasons

    def span(name: str) -> tuple[Any, Any]:
        values = [getattr(reading, name) for reading in seen]
        return min(values), max(values)

    return DeviceState(
        sm_mhz=span("sm_mhz"), memory_mhz=span("memory_mhz"), celsius=span("celsius"), watts=span("watts"),
        reasons=tuple(text for bit, text in (SLOWED | LIMITED).items() if bits & bit),
        dropped_rounds=len(sampler.dropped),
    )  # fmt: skip


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
        launch_overhead_us=raw.overhead_us,
        seconds=raw.seconds,
        method=raw.method,
    )
