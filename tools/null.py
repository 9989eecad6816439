"""The evaluator seam that agents and graph see, and a deterministic stand-in for it that needs no
device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from warpsmith.kernels.records import (
    Candidate,
    CompileReport,
    Failure,
    KernelResources,
    Outcome,
    Quantiles,
    SlotValue,
    Speedup,
    Status,
)
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.outcomes import provenance
from warpsmith.tools.runs.store import Level, RunStore


class EvaluatorLike(Protocol):
    """Turns candidates into outcomes, in order. A bad candidate is an outcome, never an exception."""

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """One outcome for each candidate; results already known are looked up, not taken again."""


@dataclass(frozen=True, slots=True)
class PlantedFailure:
    """Every candidate whose slot has this value fails in this way."""

    slot: str
    value: SlotValue
    status: Status = "compile_error"
    stage: Literal["rules", "compile", "emulate", "launch", "verify", "time", "infrastructure"] = "compile"
    kind: str = "spill"
    message: str = "registers spilled to local memory"


def pseudo_cost(candidate: Candidate) -> float:
    """Microseconds from the slot values alone: a factor in [1, 2) per slot, smooth in a number's logarithm,
    with an optimum that differs by slot. The same candidate always costs the same."""
    cost = 10.0
    for slot, value in sorted(candidate.values.items()):
        unit = int.from_bytes(hashlib.sha256(slot.encode()).digest()[:4], "big") / 2**32
        if isinstance(value, int) and not isinstance(value, bool):
            distance = abs(math.log2(1 + abs(value)) - 2 - 6 * unit)
            cost *= 1 + distance / (1 + distance)
        else:
            digest = hashlib.sha256(f"{slot}={value}".encode()).digest()
            cost *= 1 + int.from_bytes(digest[:4], "big") / 2**32
    return cost


class NullEvaluator:
    """Outcomes from a cost formula and planted failures. Counts the evaluations that were not looked up."""

    def __init__(
        self,
        *,
        problem_hash: str = "0" * 64,
        store: RunStore | None = None,
        cost: Callable[[Candidate], float] = pseudo_cost,
        failures: Sequence[PlantedFailure] = (),
        measured: bool = False,
        eager_us: float = 40.0,
    ) -> None:
        self.problem_hash = problem_hash
        self.store = store
        self.cost = cost
        self.failures = tuple(failures)
        self.measured = measured
        """Whether costs are given as times (as a GPU would) or as estimates (as without one)."""
        self.eager_us = eager_us
        self.evaluations = 0

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """One outcome for each candidate, from the store where it holds an answer."""
        return [self._one(candidate, level) for candidate in candidates]

    def _one(self, candidate: Candidate, level: Level) -> Outcome:
        if self.store is not None:
            known = self.store.outcome(candidate.id, level)
            if known is not None:
                return known
        self.evaluations += 1
        outcome = self._outcome(candidate, level)
        if self.store is not None:
            self.store.put_candidate(candidate)
            self.store.append_outcome(outcome, level)
        return outcome

    def _outcome(self, candidate: Candidate, level: Level) -> Outcome:
        outcome = Outcome(
            candidate=candidate.id, parent=candidate.parent, problem_hash=self.problem_hash, status="ok",
            provenance=provenance(candidate), precision_class=candidate.precision_class, family=candidate.family,
            slots=candidate.values, compile_s=0.0,
        )  # fmt: skip
        for planted in self.failures:
            if candidate.values.get(planted.slot) == planted.value:
                failure = Failure(stage=planted.stage, message=planted.message, slot=planted.slot, kind=planted.kind)
                return outcome.model_copy(update={"status": planted.status, "failure": failure})
        status = "screened" if level == "screen" else "ok"
        found: dict[str, object] = {"status": status, "error_ratio": 1.0, "max_abs_error": 0.0}
        return outcome.model_copy(update=found | self._figures(self.cost(candidate)))

    def _figures(self, cost: float) -> dict[str, object]:
        if not self.measured:
            return {"verified_on": "emulator:null", "estimated_us": cost}
        ratio = self.eager_us / cost
        return {
            "verified_on": "gpu:null",
            "time_us": Quantiles(p10=cost, p50=cost, p90=cost, n=1),
            "speedup": {"eager": Speedup(value=ratio, low=ratio, high=ratio)},
        }


class PassesOnce:
    """A session of a judge with a hole, around one of a sound judge: what has a planted value passes in the first
    session that judges it, whenever that one is asked, and fails as planted in all others that share `seen`."""

    def __init__(
        self, inner: EvaluatorLike, planted: Sequence[PlantedFailure], seen: dict[str, int] | None = None
    ) -> None:
        self.inner = inner
        self.planted = tuple(planted)
        self.seen = seen if seen is not None else {}
        """Candidate -> sessions that gave a full verdict on it."""
        self._told: dict[str, Outcome] = {}

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """What the sound judge says, but for what is planted."""
        found = await self.inner.evaluate(candidates, level=level)
        return [self._one(candidate, outcome, level) for candidate, outcome in zip(candidates, found, strict=True)]

    def _one(self, candidate: Candidate, outcome: Outcome, level: Level) -> Outcome:
        if level == "screen" or not outcome.correct:
            return outcome
        if candidate.id not in self._told:
            before = self.seen.get(candidate.id, 0)
            self.seen[candidate.id] = before + 1
            self._told[candidate.id] = self._planted(candidate, outcome) if before else outcome
        return self._told[candidate.id]

    def _planted(self, candidate: Candidate, outcome: Outcome) -> Outcome:
        for one in self.planted:
            if candidate.values.get(one.slot) == one.value:
                failure = Failure(stage=one.stage, message=one.message, slot=one.slot, kind=one.kind)
                return outcome.model_copy(update={"status": one.status, "failure": failure})
        return outcome


class NullCompiler:
    """Reports without compiling: sources that hold `#error` fail, others have made-up resources."""

    def __init__(self, arch: str = "sm_90") -> None:
        self.arch = arch
        self.cache_dir = default_cache_dir()
        self.compiles = 0

    async def compile_many(self, candidates: Sequence[Candidate]) -> list[CompileReport]:
        """Reports in the order of the candidates."""
        return [self._one(candidate) for candidate in candidates]

    def _one(self, candidate: Candidate) -> CompileReport:
        self.compiles += 1
        failure = None
        if "#error" in candidate.source:
            failure = Failure(stage="compile", kind="error", message="the source asks for an error")
        return CompileReport(
            ok=failure is None, arch=self.arch, nvrtc_version="0.0", cached=False, seconds=0.0,
            failure=failure,
            resources={"k": KernelResources(registers=32, spill_stores=0, spill_loads=0, shared_bytes=0)},
        )  # fmt: skip
