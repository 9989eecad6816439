"""Makes the inputs of a kind with what the module should give for them, under entropy that nobody else sees."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from warpsmith.kernels.problem import Instance, Problem
from warpsmith.sandbox.backend import Argument
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.batches import Rowwise
from warpsmith.tools.verification.checksums import sums_of
from warpsmith.tools.verification.compare import Truth, Yardstick, wider, yardstick
from warpsmith.tools.verification.compare_exact import ExactYardstick, exact_yardstick, wider_exact
from warpsmith.tools.verification.domains import InputDomain
from warpsmith.tools.verification.inputs import KINDS, Kind, attempts, draw_inputs, never_varied
from warpsmith.tools.verification.instances import Instances, named_inputs, new_seed
from warpsmith.tools.verification.memory import MemoryBudget, budget_of
from warpsmith.tools.verification.oracle import EagerOutputs
from warpsmith.tools.verification.outputs import Layout
from warpsmith.tools.verification.sealed import Sealed, opened

_FEW = 64
"""Outputs of at most so many elements, a loss for example, have an error that may be small by luck."""
_DRAWS = 4
_TF32_SHOWS = 8
"""Times the error without TF32 from which on eager's error is TF32's."""
_TF32_CHANGES = 0.01
"""Share of the error without TF32 by which eager's has to differ from it to tell that TF32 is at work."""
_MANY = 0.01
"""Share of NaN and infinities among the elements of a reference that is worth a note."""


@dataclass(frozen=True, slots=True)
class InputSet:
    """Inputs of one kind with what the module should give for them."""

    kind: Kind
    instance: Instance
    inputs: list[Any]
    references: tuple[Truth, ...]
    """Sealed where candidates share the memory, computed row by row where there is not enough of it."""
    yardsticks: tuple[Yardstick | ExactYardstick, ...]
    """The latter for outputs of integers and booleans."""
    layouts: tuple[Layout, ...]
    sums: Mapping[str, tuple[int, int]]
    """Checksums of inputs, parameters and references before any candidate ran."""
    notes: tuple[str, ...]
    made_s: float = 0.0
    """Seconds that making it took."""

    @property
    def bytes(self) -> int:
        """Memory held, weights and sealed references that have left the device aside."""
        held = [*self.inputs, *_judged_by(self.references, self.yardsticks).values()]
        return sum(
            value.nbytes
            for value in held
            if isinstance(value, torch.Tensor) or (isinstance(value, Sealed) and not value.left)
        )

    @property
    def device(self) -> torch.device:
        """Where the inputs lie."""
        return next(value.device for value in self.inputs if isinstance(value, torch.Tensor))

    def arguments(self) -> dict[str, Argument]:
        """`inN` and `param:NAME` for a launch."""
        return named_inputs(self.inputs) | {
            f"param:{name}": tensor for name, tensor in self.instance.parameters.items()
        }

    def changed(self) -> list[str]:
        """Names of inputs and parameters whose memory is no longer what it was."""
        return [name for name, total in sums_of(self.arguments()).items() if total != self.sums[name]]

    def leave(self) -> None:
        """Moves sealed references to the host's memory: a comparison fetches them piece by piece."""
        for one in _judged_by(self.references, self.yardsticks).values():
            if isinstance(one, Sealed):
                one.leave()

    def spoilt(self) -> bool:
        """Whether somebody wrote into inputs, parameters or references."""
        everything = {**self.arguments(), **_judged_by(self.references, self.yardsticks)}
        return sums_of(everything) != self.sums


@dataclass(slots=True)
class SetMaker:
    """Makes the input sets of one problem on one device. No two sets share their entropy."""

    problem: Problem
    device: torch.device
    dropped: dict[str, str] = field(default_factory=dict)
    """Kinds that this problem does not admit, with the reason."""
    sealed: bool = False
    """Whether what candidates are held against is kept unreadable."""
    memory: MemoryBudget = field(init=False)
    instances: Instances = field(init=False)
    by_rows: bool = False
    """Whether the newest references are computed row by row."""
    _shipped_finite: bool | None = None
    """None: the shipped inputs have not been run."""
    tf32: bool = False
    """Whether eager rounds float32 to TF32 somewhere."""
    tf32_at_work: bool = False
    """Whether its results change where it is kept from that, be it by so little that its error is not TF32's."""
    tf32_elsewhere: bool = False
    """The same at the declared sizes: at others cuDNN may choose otherwise, for some of its calls or all, where a
    candidate's calls round."""

    def __post_init__(self) -> None:
        self.memory = budget_of(self.device)
        self.instances = Instances(self.problem, self.device, self.memory)

    @property
    def knows_shipped(self) -> bool:
        """Whether the shipped inputs have been run, which other kinds are held against."""
        return self._shipped_finite is not None

    def fresh(self, turn: int) -> list[Any]:
        """Another draw of the shipped distribution, for timing."""
        return self.instances.fresh_inputs(new_seed() + turn)

    def bare(self) -> InputSet:
        """The shipped inputs with nothing to judge by: what is trusted can be timed on them. UserError where the module
        cannot be run."""
        instance = self.instances.shipped
        shipped = next(one for one in KINDS if one.draw is None)
        return InputSet(shipped, instance, instance.fresh_inputs(new_seed()), (), (), (), {}, ())

    def another(self, made: InputSet) -> list[Any]:
        """Other inputs of the same kind for the same module."""
        return draw_inputs(made.kind, made.instance, self.instances.domains, seed=new_seed())

    def reset(self) -> None:
        """Draws everything anew at the next use, weights too."""
        self.instances.reset()
        self._shipped_finite = None
        self.dropped.clear()

    def make(self, kind: Kind, *, on_cpu_at_need: bool = False) -> InputSet | None:
        """The set of a kind, or None, with the reason in `dropped`, where the problem does not admit it."""
        began = time.perf_counter()
        if kind.draw is not None and not self.knows_shipped:
            # Whether the shipped inputs give finite outputs decides what other kinds must give.
            self.make(next(one for one in KINDS if one.draw is None), on_cpu_at_need=on_cpu_at_need)
        # No reference to an instance is held while another is made.
        instance = self.instances.shipped if kind.draw is None else self.instances.varied(kind)
        domains = self.instances.domains
        plainer = [replace(kind, draw=kind.plainer, plainer=None)] if kind.plainer is not None else []
        tries = attempts(domains) if kind.draw is not None else [(domains, True)]
        for variety, (tried, signed) in itertools.product((kind, *plainer), tries):
            further = self._further(variety, instance, tried, signed, on_cpu_at_need)
            made = self._referenced(
                variety, instance, draw_inputs(variety, instance, tried, seed=new_seed(), signed=signed),
                on_cpu_at_need,
            )  # fmt: skip
            if isinstance(made, InputSet):
                notes = (*made.notes, *never_varied(tried))
                measures = _widened(made.yardsticks, further)
                return replace(made, notes=notes, yardsticks=measures, made_s=time.perf_counter() - began)
            self.dropped[kind.name] = made
        return None

    def _further(
        self, kind: Kind, instance: Instance, domains: Sequence[InputDomain], signed: bool, on_cpu_at_need: bool
    ) -> list[tuple[Yardstick | ExactYardstick, ...]]:
        """Where an output has few elements, eager's error on draws beside the one that is kept; before that one is
        made, as two may not fit."""
        if not kind.judged or not 0 < self.instances.least_outputs <= _FEW:
            return []

        def one() -> tuple[Yardstick | ExactYardstick, ...] | None:
            inputs = draw_inputs(kind, instance, domains, seed=new_seed(), signed=signed)
            try:
                produced = EagerOutputs(instance, inputs)
                truths = self._truths(instance, inputs, produced, on_cpu_at_need).outputs
                return _yardsticks(self._at_hand(truths), produced.get())
            except oracle.Undefined:
                return None

        return [found for found in (one() for _ in range(1, _DRAWS)) if found is not None]

    def _truths(
        self, instance: Instance, inputs: list[Any], produced: EagerOutputs, on_cpu_at_need: bool
    ) -> oracle.Reference:
        return oracle.reference64(
            instance, inputs, produced=produced, memory=self.memory, on_cpu_at_need=on_cpu_at_need
        )

    def _referenced(self, kind: Kind, instance: Instance, inputs: list[Any], on_cpu_at_need: bool) -> InputSet | str:
        """The set with its references, or why these inputs are of no use."""
        try:
            produced = EagerOutputs(instance, inputs)
            reference = (
                self._truths(instance, inputs, produced, on_cpu_at_need)
                if kind.judged
                else oracle.Reference(produced.get())
            )
        except oracle.Undefined as error:
            return f"undefined for these values ({error})"
        if [layout.shape for layout in produced.layouts] != [tuple(value.shape) for value in reference.outputs]:
            return "float64 gives outputs of other shapes"
        if not kind.judged and self._crowds_out(reference.outputs, produced.layouts):
            return "it would not be judged, and memory is short"
        measures = self._measures(kind, instance, inputs, reference.outputs, produced)
        refusal = self._refused(kind, [one for one in measures if isinstance(one, Yardstick)])
        if refusal is not None:
            return refusal
        self.dropped.pop(kind.name, None)
        notes = (*reference.notes, *_nonfinite_notes(kind, measures, reference.outputs))
        layouts = produced.layouts
        del produced
        self.by_rows = any(isinstance(value, Rowwise) for value in reference.outputs)
        references, kept = self._kept(reference.outputs, measures, layouts, inputs)
        made = InputSet(kind, instance, inputs, references, kept, layouts, {}, notes)
        return replace(made, sums=sums_of({**made.arguments(), **_judged_by(references, kept)}))

    def _refused(self, kind: Kind, measures: Sequence[Yardstick]) -> str | None:
        """Why the references of a kind cannot judge anything, or None."""
        finite = all(measure.finite for measure in measures)
        if kind.draw is None:
            self._shipped_finite = finite
        if not kind.judged:
            return None
        if not all(measure.eager_agrees for measure in measures):
            return "eager PyTorch is not finite where float64 is"
        if not finite and self._shipped_finite and kind.draw is not None:
            return "the float64 reference is not finite"
        return None

    def _measures(
        self,
        kind: Kind,
        instance: Instance,
        inputs: list[Any],
        truths: Sequence[torch.Tensor | Rowwise],
        produced: EagerOutputs,
    ) -> tuple[Yardstick | ExactYardstick, ...]:
        """Yardsticks of all outputs, with eager's own lower precision where it has one. Lets go of eager's outputs."""
        truths = self._at_hand(truths)
        measures = list(_yardsticks(truths, produced.get()))
        produced.drop()
        narrow = next(iter(self.instances.traits.narrow), None)
        strict = self._strict(kind, instance, inputs)
        for index, (measure, truth, layout) in enumerate(zip(measures, truths, produced.layouts, strict=True)):
            if not isinstance(measure, Yardstick) or layout.dtype in oracle.NARROW:
                continue
            if narrow is not None:
                measures[index] = replace(measure, inside=narrow)
            elif strict is not None:
                other = yardstick(truth, strict[index]).eager_rms
                self.tf32_at_work |= abs(measure.eager_rms - other) > _TF32_CHANGES * other
                if measure.eager_rms > _TF32_SHOWS * other:
                    self.tf32 = True
                    measures[index] = replace(measure, inside=torch.float32, strict_rms=other)
        if self.tf32_elsewhere and kind.judged and narrow is None:
            measures = self._as_in_tf32(instance, inputs, truths, measures)
        return tuple(measures)

    def _as_in_tf32(
        self, instance: Instance, inputs: list[Any], truths: Sequence[torch.Tensor | Rowwise],
        measures: Sequence[Yardstick | ExactYardstick],
    ) -> list[Yardstick | ExactYardstick]:  # fmt: skip
        """The same with the error that rounding inputs and weights to TF32 brings, where it is larger than eager's."""
        found = list(measures)
        for index, value in enumerate(oracle.eager_as_in_tf32(instance, inputs)):
            measure = found[index]
            if isinstance(measure, Yardstick) and value.dtype is torch.float32:
                rounded = yardstick(truths[index], value)
                if rounded.eager_rms > measure.eager_rms:
                    wide, strict = wider(measure, rounded), measure.strict_rms or measure.eager_rms
                    found[index] = replace(wide, inside=torch.float32, strict_rms=strict, exact=False)
        return found

    def _at_hand(self, truths: Sequence[torch.Tensor | Rowwise]) -> list[torch.Tensor | Rowwise]:
        """References, those that are computed row by row as tensors where there is room: they are looked at twice."""
        found: list[torch.Tensor | Rowwise] = []
        for one in truths:
            size = one.numel() * one.dtype.itemsize
            at_hand = isinstance(one, Rowwise) and self.memory.allows(size + self.memory.aside)
            found.append(one.opened() if at_hand and isinstance(one, Rowwise) else one)
        return found

    def _strict(self, kind: Kind, instance: Instance, inputs: list[Any]) -> tuple[torch.Tensor, ...] | None:
        """Eager's outputs without TF32 where eager may use it: asked once, of the shipped inputs."""
        possible = self.device.type == "cuda" and torch.backends.cudnn.allow_tf32
        if not kind.judged or not possible or not (kind.draw is None or self.tf32):
            return None
        return oracle.eager_without_tf32(instance, inputs)

    def _kept(
        self, outputs: tuple[torch.Tensor | Rowwise, ...], measures: tuple[Yardstick | ExactYardstick, ...],
        layouts: tuple[Layout, ...], inputs: list[Any],
    ) -> tuple[tuple[Truth, ...], tuple[Yardstick | ExactYardstick, ...]]:  # fmt: skip
        """What stays of references and of eager's integers: sealed where candidates could read it, in host memory where
        a candidate's outputs would not fit beside it."""
        if self._crowds_out(outputs, layouts):
            outputs = tuple(value if isinstance(value, Rowwise) else value.cpu() for value in outputs)
        if not self.sealed:
            return outputs, measures
        homes = [one.untyped_storage().data_ptr() for one in (*outputs, *inputs) if isinstance(one, torch.Tensor)]
        kept = tuple(
            value
            if isinstance(value, Rowwise) or value.device.type != self.device.type
            else Sealed(value, in_place=homes.count(value.untyped_storage().data_ptr()) == 1)
            for value in outputs
        )
        exact = tuple(
            replace(one, eager=Sealed(opened(one.eager))) if isinstance(one, ExactYardstick) else one
            for one in measures
        )
        return kept, exact

    def _crowds_out(self, outputs: Sequence[torch.Tensor | Rowwise], layouts: Sequence[Layout]) -> bool:
        """Whether references on the device leave no room for a candidate's outputs."""
        # Elements that do not lie in order are copied to be sealed.
        copies = sum(one.nbytes for one in outputs if isinstance(one, torch.Tensor) and not one.is_contiguous())
        return not self.memory.allows(copies + sum(layout.bytes for layout in layouts) + self.memory.working)


def _yardsticks(
    truths: Sequence[torch.Tensor | Rowwise], produced: Sequence[torch.Tensor]
) -> tuple[Yardstick | ExactYardstick, ...]:
    """Eager's error on each output."""
    return tuple(
        yardstick(truth, value) if value.is_floating_point() else exact_yardstick(truth, value)
        for truth, value in zip(truths, produced, strict=True)
    )


def _widened(
    measures: tuple[Yardstick | ExactYardstick, ...], further: Sequence[tuple[Yardstick | ExactYardstick, ...]]
) -> tuple[Yardstick | ExactYardstick, ...]:
    """The first, with the larger of eager's errors on all draws."""
    for others in further:
        measures = tuple(
            wider(one, other)
            if isinstance(one, Yardstick) and isinstance(other, Yardstick)
            else wider_exact(one, other)
            if isinstance(one, ExactYardstick) and isinstance(other, ExactYardstick)
            else one
            for one, other in zip(measures, others, strict=True)
        )
    return measures


def _nonfinite_notes(
    kind: Kind, measures: Sequence[Yardstick | ExactYardstick], truths: Sequence[torch.Tensor | Rowwise]
) -> list[str]:
    """A note for each output that the reference leaves NaN or infinite at many elements: nothing is judged there."""
    return [
        f"out{index} is NaN or infinite at {one.nonfinite} of {truth.numel()} elements on `{kind.name}` inputs"
        for index, (one, truth) in enumerate(zip(measures, truths, strict=True))
        if kind.judged and isinstance(one, Yardstick) and one.nonfinite > _MANY * truth.numel()
    ]


def _judged_by(
    references: Sequence[Truth], measures: Sequence[Yardstick | ExactYardstick]
) -> dict[str, torch.Tensor | Sealed]:
    """The tensors in memory that candidates are compared with, by name."""
    named: dict[str, torch.Tensor | Sealed] = {
        f"reference {index}": value for index, value in enumerate(references) if not isinstance(value, Rowwise)
    }
    exact = {index: one.eager for index, one in enumerate(measures) if isinstance(one, ExactYardstick)}
    return named | {f"eager {index}": value for index, value in exact.items()}
