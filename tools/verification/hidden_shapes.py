"""Hidden shapes: candidates of a template are judged at sizes nobody was told, drawn once a run from secret entropy."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from warpsmith.kernels.carry import carried_to, edited_slots, is_of, spec_at
from warpsmith.kernels.errors import SandboxError, SandboxTimeout, UserError, WorkerDied
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import Candidate, CompileReport, Failure, Outcome, VerifyReport
from warpsmith.kernels.reference.held import HeldProblem
from warpsmith.kernels.shape_variants import CLASSES, Budget, ShapeClass, Variant, Variants
from warpsmith.tools import outcomes
from warpsmith.tools.jail import HeldVariants

BUDGETS = {
    "gpu": Budget(elements=1 << 20, flops=1 << 30, drawn=1 << 28),
    "cpu": Budget(elements=1 << 17, flops=1 << 24, drawn=1 << 25),
}
"""What a hidden shape may cost, by kind of target: tens of blocks, milliseconds."""
_MOST = 8
"""Variants of one class that are tried before its sizes count as not valid for a candidate's slot values."""
_WORDS: Mapping[ShapeClass, str] = {
    "prime": "sizes that are prime",
    "one": "a size of 1",
    "tail": "sizes beside a multiple of a tile",
}


class CompilerLike(Protocol):
    """What is needed of a compiler."""

    async def compile_many(self, candidates: Sequence[Candidate]) -> list[CompileReport]:
        """Reports in the order of the candidates."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate lowered again at one hidden shape, compiled."""

    variant: Variant
    candidate: Candidate
    report: CompileReport


@dataclass(frozen=True, slots=True)
class Trials:
    """What a candidate is to be judged at beyond the declared shape."""

    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    """Why a class, or every one, is left out."""
    edited: tuple[str, ...] = ()
    """Code slots whose text is not the lowering's own."""


Run = Callable[[Trial], Awaitable[VerifyReport]]
Stage = Literal["rules", "compile", "emulate", "launch", "verify", "time", "infrastructure"]


class HiddenShapes:
    """Shape variants of one run's problem, made when the first full verdict asks for them."""

    def __init__(
        self,
        problem: Problem,
        graph: OpGraph | None,
        specs: Mapping[str, KernelSpec],
        budget: Budget,
        seed: int | None = None,
    ) -> None:
        """`specs` by family name: candidates of other families were not made from a template. Without specs no graph is
        needed. `seed` is for tests."""
        flops = graph.flops if graph is not None else 0
        seed = secrets.randbits(64) if seed is None else seed
        self._variants: Variants | HeldVariants = (
            HeldVariants(problem, flops, budget, seed)
            if isinstance(problem, HeldProblem)
            else Variants(problem, flops, budget, seed, _used(graph))
        )
        self._specs = dict(specs)
        self._drawn: dict[ShapeClass, list[Variant | None]] = {shape: [] for shape in CLASSES}
        """By class, in the order of drawing; None ends a class."""
        self._spaces: dict[tuple[str, int], KernelSpec | str] = {}
        """By family and variant, which are kept above."""
        self._lock = threading.Lock()

    async def trials(
        self, candidate: Candidate, compiler: CompilerLike, *, classes: Sequence[ShapeClass] = CLASSES
    ) -> Trials:
        """The candidate at one shape of each class, compiled side by side."""
        spec = self._specs.get(candidate.family)
        if spec is None or not is_of(spec, candidate):
            return Trials((), ("judged at the declared shape alone: it was not made from a template",))
        placed, notes = await asyncio.to_thread(self._placed, spec, candidate, classes)
        reports = await compiler.compile_many([there for _, there in placed])
        found = [Trial(variant, there, report) for (variant, there), report in zip(placed, reports, strict=True)]
        return Trials(tuple(found), tuple(notes), tuple(edited_slots(spec, candidate)))

    def _placed(
        self, spec: KernelSpec, candidate: Candidate, classes: Sequence[ShapeClass]
    ) -> tuple[list[tuple[Variant, Candidate]], list[str]]:
        placed: list[tuple[Variant, Candidate]] = []
        notes: list[str] = []
        for shape in classes:
            found = self._place(spec, candidate, shape)
            if isinstance(found, str):
                notes.append(f"not judged at {_WORDS[shape]}: {found}")
            else:
                placed.append(found)
        return placed, notes

    def _place(self, spec: KernelSpec, candidate: Candidate, shape: ShapeClass) -> tuple[Variant, Candidate] | str:
        """The first variant of a class at which the slot values are valid, or why there is none."""
        reason = "no such sizes were found at which the module runs"
        for number in range(min(_MOST, self._variants.most)):
            variant = self._variant(shape, number)
            if variant is None:
                break
            space = self._space(spec, variant)
            there = space if isinstance(space, str) else carried_to(spec, candidate, space)
            if isinstance(there, Candidate):
                return variant, there
            reason = "the slot values are not valid there"
        return reason

    def _space(self, spec: KernelSpec, variant: Variant) -> KernelSpec | str:
        """The search space there, the same for all candidates of a family."""
        key = spec.family.name, id(variant)
        if key not in self._spaces:
            self._spaces[key] = spec_at(spec, variant.graph)
        return self._spaces[key]

    def _variant(self, shape: ShapeClass, number: int) -> Variant | None:
        """The variant of that number, drawn at the first call. May be called from several threads."""
        with self._lock:
            drawn = self._drawn[shape]
            while len(drawn) <= number and None not in drawn:
                drawn.append(self._variants.draw(shape, len(drawn)))
            return drawn[number] if number < len(drawn) else None


def _used(graph: OpGraph | None) -> frozenset[str] | None:
    return None if graph is None else frozenset(leaf.ref for leaf in graph.inputs.values())


async def judge_at(outcome: Outcome, trials: Trials, run: Run, *, on_gpu: bool) -> Outcome:
    """The outcome of a verified candidate after its trials; `run` judges one of them. What goes wrong on our side says
    nothing about the candidate: that class is left out, with a warning. Messages name classes, never sizes."""
    notes = list(trials.notes)
    judged = 0
    for trial in trials.trials:
        shape = trial.variant.shape
        found = await _verdict(trial, run, edited=bool(trials.edited), on_gpu=on_gpu)
        if isinstance(found, Failure):
            slot = trials.edited[0] if len(trials.edited) == 1 else None
            return outcomes.failed(outcome, found.model_copy(update={"slot": slot}))
        if found is not None:
            notes.append(f"not judged at {_WORDS[shape]}: {found}")
        judged += found is None
    if not judged and trials.trials:
        notes.append("judged at the declared shape alone")
    update = {"shape_specific": judged == 0, "warnings": (*outcome.warnings, *notes)}
    return outcome.model_copy(update=update)


async def _verdict(trial: Trial, run: Run, *, edited: bool, on_gpu: bool) -> Failure | str | None:
    """None where the candidate is right at this shape, its failure, or why nothing can be said."""
    shape = trial.variant.shape
    if not trial.report.ok:
        # Without edits the text is the family's own, and nothing in it is the candidate's fault.
        return _failure(shape, "compile", "it does not compile") if edited else "it does not compile there"
    try:
        report = await run(trial)
    except SandboxTimeout:
        return _failure(shape, "hang", "it does not end") if on_gpu else "too much for the emulator"
    except WorkerDied:
        return _failure(shape, "process_died", "the process died")
    except (SandboxError, UserError):
        return "the reference could not be computed"
    if report.not_emulated is not None:
        return "the emulator cannot run it"
    if report.failure is None:
        return None
    if report.failure.stage == "infrastructure":
        return "no input gives a usable reference"
    return _failure(shape, report.failure.kind or "mismatch", _figures(report), report.failure.stage)


def _failure(shape: ShapeClass, kind: str, what: str, stage: Stage = "verify") -> Failure:
    """A crash or a hang stays what it is; everything else is a wrong kernel."""
    found = Failure(stage=stage, kind=kind, message=f"fails at {_WORDS[shape]}, not at the declared ones: {what}")
    if outcomes.status_of(found) == "wrong":
        return found.model_copy(update={"stage": "verify", "kind": "hidden_shape"})
    return found


def _figures(report: VerifyReport) -> str:
    """What may be told of a failure: its kind and how large the error is."""
    kind = (report.failure.kind if report.failure else None) or "mismatch"
    ratio = "" if report.error_ratio is None else f", error {report.error_ratio:.2g} times that of eager PyTorch"
    return f"{kind.replace('_', ' ')}{ratio}"
