"""Outcomes: how compile reports, verdicts and times become the one record that stays of a candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import SandboxTimeout
from warpsmith.kernels.records import (
    Candidate,
    CompileReport,
    Failure,
    LibraryStep,
    Outcome,
    Provenance,
    Status,
    TimingReport,
    VerifyReport,
)
from warpsmith.tools.runs.store import Level

Stage = Literal["verify", "time"]
Estimate = Callable[[Candidate, CompileReport], float | None]

_CRASH = {
    "illegal_address", "out_of_bounds", "misaligned", "misaligned_address", "launch_failed", "device_assert",
    "trap", "illegal_instruction", "invalid_pc", "invalid_address_space", "hardware_stack_error", "cuda_error",
    "process_died",
}  # fmt: skip
_SLOT_OF = {"capture": "launch"}
_HANG = {"hang", "deadlock", "step_limit", "timeout", "launch_timeout"}
_WRONG = {"race", "uninitialised", "uninitialized", "divergent_barrier", "barrier"}


@dataclass(frozen=True, slots=True)
class Roof:
    """The least time the problem can take, by its bytes and operations."""

    floor_us: float
    gate_us: float = 0.0
    """Below this a time is not believed: the floor less what L2 may have kept from memory, times 0.9."""


def roof_of(floor_us: float, device: DeviceModel) -> Roof:
    """The roof of a problem with this floor on a device."""
    in_cache_us = device.l2_bytes / device.dram_bytes_per_s * 1e6
    return Roof(floor_us, max(0.0, 0.9 * (floor_us - in_cache_us)))


def compiled(candidate: Candidate, report: CompileReport, problem_hash: str, estimate: Estimate | None) -> Outcome:
    """The outcome as far as the compile goes."""
    used = report.resources.values()
    dynamic = [getattr(step, "shared_bytes", 0) for step in candidate.plan.steps]
    refused = report.failure is not None and report.failure.stage == "rules"
    return Outcome(
        candidate=candidate.id, parent=candidate.parent, problem_hash=problem_hash,
        status="rejected" if refused else "compile_error", provenance=provenance(candidate),
        precision_class=candidate.precision_class, family=candidate.family, slots=candidate.values,
        registers=max((r.registers for r in used), default=None),
        spills=sum(r.spill_stores + r.spill_loads for r in used) if used else None,
        shared_bytes=max(r.shared_bytes for r in used) + max(dynamic, default=0) if used else None,
        estimated_us=estimate(candidate, report) if estimate and report.ok else None,
        failure=report.failure, compile_s=report.seconds,
    )  # fmt: skip


def verified(outcome: Outcome, verdict: VerifyReport, warnings: Sequence[str], level: Level) -> Outcome:
    """The outcome after verification at a level."""
    status: Status = "screened" if level == "screen" else "ok"
    failure = verdict.failure
    if verdict.not_emulated is not None:
        status = "not_measured"
        failure = Failure(stage="emulate", kind="unsupported", message=verdict.not_emulated)
    elif failure is not None:
        status = status_of(failure)
        failure = _at_slot(failure, outcome)
    return outcome.model_copy(
        update={
            "status": status,
            "failure": failure,
            "verified_on": verdict.verified_on,
            "error_ratio": verdict.error_ratio,
            "max_abs_error": verdict.max_abs_error,
            "counters": verdict.counters,
            "verify_s": verdict.seconds,
            "eager_peak_bytes": verdict.eager_peak_bytes,
            "judge_peak_bytes": verdict.judge_peak_bytes,
            "warnings": (*outcome.warnings, *warnings),
        }
    )


def _at_slot(failure: Failure, outcome: Outcome) -> Failure:
    """The failure with the slot at fault where its kind tells, so that a search changes that one."""
    slot = _SLOT_OF.get(failure.kind or "")
    return failure.model_copy(update={"slot": slot}) if failure.slot is None and slot in outcome.slots else failure


def timed(outcome: Outcome, timing: TimingReport, notes: Sequence[str], roof: Roof | None) -> Outcome:
    """The outcome with its times; `suspicious` where they are below what the device can do."""
    time_us = timing.time_us.p50
    update: dict[str, Any] = {
        "time_us": timing.time_us,
        "speedup": timing.speedup or None,
        "time_s": timing.seconds,
        "launch_overhead_us": timing.launch_overhead_us,
        "warnings": (*outcome.warnings, *notes, f"timed by {timing.method}"),
    }
    if roof is not None and roof.floor_us > 0:
        update["roofline_fraction"] = roof.floor_us / time_us
        if time_us < roof.gate_us:
            message = f"{time_us:.2f} us is below what the device can do ({roof.gate_us:.2f} us)"
            failure = Failure(stage="time", kind="below_floor", message=message)
            update |= {"failure": failure, "status": "suspicious"}
    return outcome.model_copy(update=update)


def failed(outcome: Outcome, failure: Failure, **more: Any) -> Outcome:
    """The outcome of a candidate that got no further; `more` are other fields to set."""
    return outcome.model_copy(update={"status": status_of(failure), "failure": failure, **more})


def late(outcome: Outcome, stage: Stage, error: SandboxTimeout, *, on_gpu: bool) -> Outcome:
    """A deadline on a GPU is the candidate's; the emulator finds endless loops itself: there it is
    size."""
    if on_gpu:
        return failed(outcome, Failure(stage=stage, kind="hang", message=str(error)))
    message = f"{error}: too much for the emulator; make the problem smaller with --set NAME=VALUE"
    failure = Failure(stage="emulate", kind="too_slow", message=message)
    return outcome.model_copy(update={"status": "not_measured", "failure": failure})


def status_of(failure: Failure) -> Status:
    """The status that a failure after compilation stands for."""
    if failure.stage == "infrastructure":
        return "infrastructure_error"
    if failure.kind in _CRASH:
        return "crashed"
    if failure.kind in _HANG:
        return "hang"
    if failure.stage == "verify" or failure.kind in _WRONG:
        return "wrong"
    if failure.stage == "time":
        return "suspicious"
    return "launch_error"


def provenance(candidate: Candidate) -> Provenance:
    """Whose kernels a plan runs."""
    library = [isinstance(step, LibraryStep) for step in (*candidate.plan.prepare, *candidate.plan.steps)]
    if not any(library):
        return "own"
    return "library" if all(library) else "hybrid"
