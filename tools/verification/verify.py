"""Is a candidate right? Runs it on every kind of input with poisoned outputs and applies the numerical
rule."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from warpsmith.kernels.problem import Instance
from warpsmith.kernels.records import CompileReport, Counters, Failure, LaunchPlan, VerifyReport
from warpsmith.sandbox.backend import Loaded
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.checksums import same_bits
from warpsmith.tools.verification.compare import LIMITS, Comparison, Yardstick, compare, difference
from warpsmith.tools.verification.compare_exact import ExactYardstick, compare_exact
from warpsmith.tools.verification.fused import untold
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.inputs import SHIPPED, WHOLE
from warpsmith.tools.verification.order import TRIES, Order
from warpsmith.tools.verification.outputs import GuardedOutputs, Layout
from warpsmith.tools.verification.session import Session, session_for

_FIRST_POISON = 0xFF
"""NaN in every float format, -1 in every integer format."""
_HARMLESS = {"race", "uninitialized"}
"""Failures of order and of values, not of addresses: told of inputs that are not judged, as results are."""
_VALUES = {"mismatch", "nonfinite"}
_TURNS = 6
"""Runs over either of two buffers that tell whether a result depends on where it is written."""


@dataclass(slots=True)
class _Progress:
    """What the sets so far have shown."""

    checks: int = 0
    ratio: float | None = None
    strict_ratio: float | None = None
    """To eager kept from TF32, where eager uses it."""
    max_abs_error: float | None = None
    counters: Counters | None = None
    refused: str | None = None
    failure: Failure | None = None
    reordered: bool = False
    """Whether the newest launch ran blocks in an order of its own."""
    warnings: list[str] = field(default_factory=list)
    instance: Instance | None = None
    """Whose weights the last run had."""
    ran: Callable[[], AbstractContextManager[object]] = nullcontext
    """Entered around each launch."""

    def note(self, found: Comparison) -> None:
        """Keeps the largest figures."""
        if found.ratio is not None:
            self.ratio = max(self.ratio or 0.0, found.ratio)
        if found.strict_ratio is not None:
            self.strict_ratio = max(self.strict_ratio or 0.0, found.strict_ratio)
        if found.max_abs_error is not None:
            self.max_abs_error = max(self.max_abs_error or 0.0, found.max_abs_error)


def run_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job. Payload: `problem`, `target`, `plan`, `report`, `level`. Gives a VerifyReport and
    warnings."""
    session = session_for(payload)
    plan = LaunchPlan.model_validate(payload["plan"])
    report = CompileReport.model_validate(payload["report"])
    verdict, warnings = verify(session, plan, report, level=payload["level"])
    return {"report": verdict.model_dump(mode="json"), "warnings": warnings}


def prepare_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job: makes the inputs and references of a level, as far as they can be kept. Gives their kinds."""
    session = session_for(payload)
    level, kinds = payload["level"], []
    for name in session.names(level):
        # Making the first one says how much memory there is, and with it what else is made.
        if name not in session.names(level):
            continue
        with session.alone(shared=True):
            made = session.input_set(name, level)
        if made is not None and not session.keeps(name, level):
            break
        kinds += [name] if made is not None else []
    return {"kinds": kinds, "dropped": session.dropped, "device": session.backend.label}


def verify(
    session: Session, plan: LaunchPlan, report: CompileReport, *, level: Literal["quick", "full"]
) -> tuple[VerifyReport, list[str]]:
    """Judges a compiled candidate; stops at the first failure. UserError where the problem does not fit."""
    began = time.perf_counter() - session.waited_s
    with session.alone(shared=True):
        if level == "full":
            session.renew()
        loaded = session.backend.load(report, plan)
    session.expect(plan)
    order = Order(report, plan)
    progress = _judge_with_room(session, loaded, level, order)
    if progress.failure is not None and progress.failure.stage == "verify" and _spoilt(session):
        # An earlier candidate may have written into inputs or references: a verdict needs whole ones.
        session.reset()
        progress = _judge_sets(session, loaded, level, order)
    if progress.failure is not None and progress.failure.kind in ("guard", "inputs_changed"):
        session.reset()
    if progress.checks == 0 and progress.failure is None and progress.refused is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in session.dropped.items())
        message = f"no kind of input gives a usable reference ({reasons})"
        progress.failure = Failure(stage="infrastructure", kind="no_reference", message=message)
    verdict = VerifyReport(
        ok=progress.failure is None and progress.refused is None, verified_on=session.backend.label,
        checks=progress.checks, error_ratio=progress.ratio, max_abs_error=progress.max_abs_error,
        failure=progress.failure, counters=progress.counters, not_emulated=progress.refused,
        seconds=time.perf_counter() - session.waited_s - began,
        eager_peak_bytes=session.memory.eager_bytes, judge_peak_bytes=session.memory.judge_bytes,
    )  # fmt: skip
    if progress.strict_ratio is not None:
        progress.warnings.append(
            f"eager rounds to TF32 here: the error is {progress.ratio:.3g} times eager's, {progress.strict_ratio:.3g} "
            "times that of eager without TF32"
        )
    dropped = [f"inputs `{name}` left out: {reason}" for name, reason in session.dropped.items()]
    return verdict, [*dict.fromkeys([*progress.warnings, *dropped, *untold()])]


def _judge_with_room(session: Session, loaded: Loaded, level: Literal["quick", "full"], order: Order) -> _Progress:
    """As `_judge_sets`, once more with everything given up that can be made again where memory falls short."""
    try:
        return _judge_sets(session, loaded, level, order)
    except Exception as error:
        if not oracle.is_out_of_memory(error):
            raise
    # Outside the handler: the traceback would hold on to what was made.
    with session.alone(shared=True):
        loaded.release()
        session.release()
        session.forget_compiled()
    return _judge_sets(session, loaded, level, order)


def _judge_sets(session: Session, loaded: Loaded, level: Literal["quick", "full"], order: Order) -> _Progress:
    """Runs the kinds of a level until one fails. `order` tells whether that of threads may show in results."""
    progress = _Progress(ran=session.running)
    inputs: InputSet | None = None
    for number, name in enumerate(session.names(level)):
        # A set that the session does not keep has to go before the next is made.
        inputs = None
        # At first a library may time its algorithms.
        with session.alone(shared=not session.benchmarks or number > 0):
            if session.crowded():
                loaded.release()
                progress.instance = None
            inputs = session.input_set(name, level)
            if inputs is not None and progress.instance is None:
                session.clear_for(inputs)
            twice = level == "full" and inputs is not None and inputs.kind.twice
            if inputs is not None and not _check(session, loaded, inputs, progress, twice, order):
                break
    return progress


def _spoilt(session: Session) -> bool:
    with session.alone(shared=True):
        return session.spoilt()


def _check(session: Session, loaded: Loaded, inputs: InputSet, progress: _Progress, twice: bool, order: Order) -> bool:
    """One input set: run, look for damage, compare; with `twice`, run again over another poison, compare
    bits."""
    first, second = session.outputs(inputs.layouts)
    poison = _FIRST_POISON if twice or inputs.kind.name == SHIPPED else _other_poison()
    # On other inputs, with the same weights, the candidate finds its scratch as it left it, as in use.
    again = not twice and progress.instance is inputs.instance
    if not _run_once(loaded, inputs, first, poison, progress, again=again):
        return False
    progress.warnings.extend(inputs.notes)
    if twice and not _repeats(loaded, inputs, first, second, progress, order):
        return False
    progress.checks += inputs.kind.judged
    return True


def _repeats(
    loaded: Loaded, inputs: InputSet, first: GuardedOutputs, second: GuardedOutputs | None, progress: _Progress,
    order: Order,
) -> bool:  # fmt: skip
    """A second run over another poison gives the same bits. Without a second buffer the first one is used again, and
    digests under a secret key stand for what was in it."""
    again, key = second or first, secrets.randbits(62)
    before = None if second is not None else first.digests(key)
    was_reordered = progress.reordered

    def same() -> bool:
        return _equal_bits(first, second) if second is not None else first.digests(key) == before

    if not _run_once(loaded, inputs, again, _other_poison(), progress):
        return False
    if not same():
        reordered = progress.reordered != was_reordered
        found = _by_order(inputs) if reordered else _differs(loaded, inputs, again, same, order)
        progress.failure = found
        if found.kind != "nondeterministic":
            return False
        if second is not None:
            progress.failure = _by_place(loaded, inputs, first, second) or _apart(inputs, first, second) or found
        if progress.failure is found and order.excused(inputs, progress.counters):
            progress.warnings.append(found.message)
            progress.failure = None
    return progress.failure is None


def _by_place(loaded: Loaded, inputs: InputSet, first: GuardedOutputs, second: GuardedOutputs) -> Failure | None:
    """The failure of a result that differs between two places in memory and never does at the same one: the order of
    threads does not know where an output lies."""
    key = secrets.randbits(62)
    outputs, kept = (first, second), [one.digests(key) for one in (first, second)]
    for turn in range(2 * _TURNS):
        now = outputs[turn % 2]
        now.poison(_other_poison())
        result = loaded.launch({**inputs.arguments(), **now.named()}, poison=_other_poison())
        if result.failure is not None:
            return result.failure
        if now.digests(key) != kept[turn % 2]:
            return None
    return _wrong("by_address", f"on `{inputs.kind.name}` inputs the result depends on the address of its outputs")


def _apart(inputs: InputSet, first: GuardedOutputs, second: GuardedOutputs) -> Failure | None:
    """The failure of two results that differ by more than the order of additions explains."""
    for index, (one, other) in enumerate(zip(first.tensors, second.tensors, strict=True)):
        measure = inputs.yardsticks[index]
        if isinstance(measure, Yardstick) and inputs.kind.judged:
            ratio = difference(one, other) / measure.eager_rms
            limit = 2 * LIMITS[one.dtype].max_ratio
            if ratio > limit:
                apart = f"two runs differ by {ratio:.3g} times eager's error (limit {limit:g})"
                return _wrong("nondeterministic", f"out{index} on `{inputs.kind.name}` inputs: {apart}")
    return None


def _run_once(
    loaded: Loaded, inputs: InputSet, outputs: GuardedOutputs, poison: int, progress: _Progress, *, again: bool = False
) -> bool:
    """Launches on poisoned outputs and judges what comes back; with `again`, over what the last run left in scratch."""
    outputs.poison(poison)
    with progress.ran():
        result = loaded.launch({**inputs.arguments(), **outputs.named()}, poison=poison, again=again)
    progress.instance = inputs.instance
    progress.counters = result.counters or progress.counters
    progress.refused = result.refused
    progress.failure = result.failure
    progress.reordered = bool(result.notes)
    if result.failure is None and result.refused is None:
        progress.failure = _damage(inputs, outputs) or _judge(inputs, outputs, progress)
        if result.notes and progress.failure is not None and progress.failure.kind in _VALUES:
            progress.failure = _in_order(loaded, inputs, outputs, poison, progress.failure)
    elif result.failure is not None and not inputs.kind.judged and result.failure.kind in _HARMLESS:
        progress.warnings.append(f"on `{inputs.kind.name}` inputs, which are not judged: {result.failure.message}")
        progress.failure = None
    return progress.failure is None and progress.refused is None


def _in_order(loaded: Loaded, inputs: InputSet, outputs: GuardedOutputs, poison: int, found: Failure) -> Failure:
    """Values were wrong after a launch with its blocks in an order of their own: whether that is what made them so."""
    outputs.poison(poison)
    result = loaded.launch({**inputs.arguments(), **outputs.named()}, poison=poison)
    if result.failure is not None or result.notes or _judge(inputs, outputs, _Progress()) is not None:
        return found
    return _wrong("race", f"{found.message}; it is right where blocks run in order: some do not wait for others")


def _damage(inputs: InputSet, outputs: GuardedOutputs) -> Failure | None:
    broken = outputs.broken_guards()
    if broken:
        names = ", ".join(f"out{index}" for index in broken)
        return _wrong("guard", f"the kernel writes outside of {names}")
    changed = inputs.changed()
    if changed:
        return _wrong("inputs_changed", f"the kernel changes {', '.join(changed)}")
    return None


def _judge(inputs: InputSet, outputs: GuardedOutputs, progress: _Progress) -> Failure | None:
    """Compares all outputs of one run with the references."""
    for index, value in enumerate(outputs.tensors):
        found = compare_output(inputs, index, value)
        if not inputs.kind.judged:
            if found.problem is not None and "NaN" in found.problem:
                progress.warnings.append(
                    f"out{index} where inputs hold NaN and infinities (not judged): {found.problem}"
                )
            continue
        progress.note(found)
        if found.problem is not None:
            kind = "nonfinite" if "NaN" in found.problem else "mismatch"
            hint = _layout_hint(index, outputs.layouts[index])
            return _wrong(kind, f"out{index} on `{inputs.kind.name}` inputs: {found.problem}{hint}")
    return None


def _layout_hint(index: int, layout: Layout) -> str:
    """What an author may have missed: an output need not be in row-major order."""
    return "" if layout.row_major else f"; out{index} has the strides {layout.strides} of eager's output"


def compare_output(inputs: InputSet, index: int, value: torch.Tensor) -> Comparison:
    """One output against its reference by the rule of its dtype."""
    measure, reference = inputs.yardsticks[index], inputs.references[index]
    if isinstance(measure, ExactYardstick):
        return compare_exact(value, reference, measure, inputs.inputs, lambda other: _rerun(inputs, index, other))
    return compare(value, reference, measure, by_ratio=inputs.kind.zero_mean, whole=inputs.kind.name == WHOLE)


def _rerun(inputs: InputSet, index: int, other: list[Any]) -> torch.Tensor | None:
    """An output of the module on other inputs, or None where it refuses them."""
    try:
        return oracle.eager(inputs.instance, other)[index]
    except oracle.Undefined:
        return None


def _differs(
    loaded: Loaded,
    inputs: InputSet,
    outputs: GuardedOutputs,
    same: Callable[[], bool],
    order: Order,
) -> Failure:
    """Two right results with different bits: the poison shows in them, or the order of the threads does. Sums of
    atomics may have the same bits twice by chance, so they are tried more often."""
    for _ in range(TRIES if order.in_code or order.in_calls else 1):
        outputs.poison(_FIRST_POISON)
        result = loaded.launch({**inputs.arguments(), **outputs.named()}, poison=_FIRST_POISON)
        if result.failure is not None:
            return result.failure
        if not same():
            return _by_order(inputs)
    message = f"on `{inputs.kind.name}` inputs the result depends on what was in its outputs or scratch before"
    return _wrong("uninitialised", message)


def _by_order(inputs: InputSet) -> Failure:
    return _wrong("nondeterministic", f"on `{inputs.kind.name}` inputs the result depends on the order of the threads")


def _equal_bits(first: GuardedOutputs, second: GuardedOutputs) -> bool:
    return all(same_bits(a, b) for a, b in zip(first.payloads, second.payloads, strict=True))


def _other_poison() -> int:
    return 1 + secrets.randbelow(0xFE)


def _wrong(kind: str, message: str) -> Failure:
    return Failure(stage="verify", kind=kind, message=message)
