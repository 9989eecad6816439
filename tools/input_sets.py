"""Makes the inputs of a kind with what the module should give for them, under entropy that nobody else sees."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Instance, Problem
from warpsmith.sandbox.backend import Argument
from warpsmith.tools import oracle
from warpsmith.tools.checksums import checksum, memory_of
from warpsmith.tools.compare import Yardstick, wider, yardstick
from warpsmith.tools.compare_exact import ExactYardstick, exact_yardstick, wider_exact
from warpsmith.tools.inputs import (
    KINDS,
    SHIPPED,
    InputDomain,
    Kind,
    attempts,
    domain_of,
    draw_inputs,
    never_varied,
    perturb_parameters,
)
from warpsmith.tools.outputs import Layout, layout_of
from warpsmith.tools.sealed import Sealed, opened

_FEW = 64
"""Outputs of at most so many elements, a loss for example, have an error that may be small by luck."""
_DRAWS = 4

EMULATED_ELEMENTS = 1 << 25
"""Inputs and outputs beyond this many elements would keep the emulator busy for many minutes."""


@dataclass(frozen=True, slots=True)
class InputSet:
    """Inputs of one kind with what the module should give for them."""

    kind: Kind
    instance: Instance
    inputs: list[Any]
    references: tuple[torch.Tensor | Sealed, ...]
    """Sealed where candidates share the memory."""
    yardsticks: tuple[Yardstick | ExactYardstick, ...]
    """The latter for outputs of integers and booleans."""
    layouts: tuple[Layout, ...]
    sums: Mapping[str, tuple[int, int, int]]
    """Checksums of inputs, parameters and references before any candidate ran."""
    notes: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Memory held, weights aside."""
        held = [*self.inputs, *_judged_by(self.references, self.yardsticks).values()]
        return sum(value.nbytes for value in held if isinstance(value, (torch.Tensor, Sealed)))

    def arguments(self) -> dict[str, Argument]:
        """`inN` and `param:NAME` for a launch."""
        return _named_inputs(self.inputs) | {
            f"param:{name}": tensor for name, tensor in self.instance.parameters.items()
        }

    def changed(self) -> list[str]:
        """Names of inputs and parameters whose memory is no longer what it was."""
        return [name for name, total in _sums(self.arguments()).items() if total != self.sums[name]]

    def spoilt(self) -> bool:
        """Whether somebody wrote into inputs, parameters or references."""
        everything = {**self.arguments(), **_judged_by(self.references, self.yardsticks)}
        return _sums(everything) != self.sums


@dataclass(slots=True)
class SetMaker:
    """Makes the input sets of one problem on one device."""

    problem: Problem
    device: torch.device
    dropped: dict[str, str] = field(default_factory=dict)
    """Kinds that this problem does not admit, with the reason."""
    sealed: bool = False
    """Whether what candidates are held against is kept unreadable."""
    _entropy: int = field(default_factory=lambda: int.from_bytes(os.urandom(7), "big"))
    _shipped: Instance | None = None
    _perturbed: Instance | None = None
    _domains: list[InputDomain] = field(default_factory=list)
    _shipped_finite: bool = True
    _shipped_seen: bool = False

    @property
    def shipped(self) -> Instance:
        """The problem as its file makes it, on the device."""
        if self._shipped is None:
            if self.device.type == "cpu":
                self._check_size()
            made = self.problem.instantiate(device=str(self.device), seed=self._entropy)
            before = _sums(_named_inputs(made.inputs))
            # One draw at a time: two may not fit.
            made.inputs = []
            again = made.fresh_inputs(self._entropy + 3)
            after = _sums(_named_inputs(again))
            still = [f"in{n}" in after and before.get(f"in{n}") == after[f"in{n}"] for n in range(len(again))]
            self._domains = [domain_of(value, still=one) for value, one in zip(again, still, strict=True)]
            self._shipped = made
        return self._shipped

    @property
    def perturbed(self) -> Instance:
        """The same with weights moved away from ones and zeros."""
        if self._perturbed is None:
            seed = self._entropy + 1
            self._perturbed = self.problem.instantiate(device=str(self.device), seed=seed)
            self._perturbed.inputs = []
            perturb_parameters(self._perturbed, seed=seed)
        return self._perturbed

    @property
    def knows_shipped(self) -> bool:
        """Whether the shipped inputs have been run, which other kinds are held against."""
        return self._shipped_seen

    def fresh(self, turn: int) -> list[Any]:
        """Another draw of the shipped distribution, for timing."""
        return self.shipped.fresh_inputs(self._entropy + 1000 + turn)

    def reset(self) -> None:
        """Draws everything anew at the next use, under new entropy."""
        self._entropy = int.from_bytes(os.urandom(7), "big")
        self._shipped = self._perturbed = None
        self._shipped_seen = False
        self.dropped.clear()

    def make(self, kind: Kind, *, on_cpu_at_need: bool = False) -> InputSet | None:
        """The set of a kind, or None, with the reason in `dropped`, where the problem does not admit it."""
        if kind.name != SHIPPED and not self._shipped_seen:
            # Whether the shipped inputs give finite outputs decides what other kinds must give.
            self.make(next(one for one in KINDS if one.name == SHIPPED), on_cpu_at_need=on_cpu_at_need)
        instance = self.shipped if kind.draw is None else self._varied()
        position = [one.name for one in KINDS].index(kind.name)
        for domains, signed in attempts(self._domains) if kind.draw is not None else [(self._domains, True)]:
            inputs = self._draw(kind, instance, position, domains, signed)
            made = self._referenced(kind, instance, inputs, on_cpu_at_need)
            if isinstance(made, InputSet):
                made = replace(made, notes=(*made.notes, *never_varied(domains)))
                return self._with_more_draws(made, position, domains, signed)
            self.dropped[kind.name] = made
        return None

    def _draw(
        self, kind: Kind, instance: Instance, position: int, domains: Sequence[InputDomain], signed: bool
    ) -> list[Any]:
        seed = self._entropy + 17 * (position + 1)
        return draw_inputs(kind, instance, domains, seed=seed, signed=signed)

    def _with_more_draws(self, made: InputSet, position: int, domains: Sequence[InputDomain], signed: bool) -> InputSet:
        """Where an output has few elements, eager's error on further draws is counted in."""
        counts = [truth.numel() for truth in made.references]
        if not counts or min(counts) > _FEW:
            return made
        measures = list(made.yardsticks)
        for extra in range(1, _DRAWS):
            other = self._draw(made.kind, made.instance, position + extra * len(KINDS), domains, signed)
            try:
                produced = oracle.eager(made.instance, other)
                truths = oracle.reference64(made.instance, other).outputs
            except oracle.Undefined:
                continue
            for index, (measure, truth, value) in enumerate(zip(measures, truths, produced, strict=True)):
                if isinstance(measure, Yardstick):
                    measures[index] = wider(measure, yardstick(truth, value))
                else:
                    measures[index] = wider_exact(measure, exact_yardstick(truth, value))
        return replace(made, yardsticks=tuple(measures))

    def _varied(self) -> Instance:
        named = [*self.shipped.module.parameters(), *self.shipped.module.buffers()]
        return self.perturbed if any(tensor.is_floating_point() for tensor in named) else self.shipped

    def _referenced(self, kind: Kind, instance: Instance, inputs: list[Any], on_cpu_at_need: bool) -> InputSet | str:
        """The set with its references, or why these inputs are of no use."""
        try:
            produced = oracle.eager(instance, inputs)
            reference = oracle.reference64(instance, inputs, on_cpu_at_need=on_cpu_at_need)
        except oracle.Undefined as error:
            return f"undefined for these values ({error})"
        shapes = [tuple(value.shape) for value in produced]
        if shapes != [tuple(value.shape) for value in reference.outputs]:
            return "float64 gives outputs of other shapes"
        measures = tuple(
            yardstick(truth, value) if value.is_floating_point() else exact_yardstick(truth, value)
            for truth, value in zip(reference.outputs, produced, strict=True)
        )
        floats = [measure for measure in measures if isinstance(measure, Yardstick)]
        finite = all(measure.finite for measure in floats)
        if kind.name == SHIPPED:
            self._shipped_finite = finite
            self._shipped_seen = True
        if not all(measure.eager_agrees for measure in floats):
            return "eager PyTorch is not finite where float64 is"
        if not finite and self._shipped_finite and kind.name != SHIPPED:
            return "the float64 reference is not finite"
        self.dropped.pop(kind.name, None)
        layouts = tuple(layout_of(value) for value in produced)
        references, measures = self._kept(reference.outputs, measures)
        made = InputSet(kind, instance, inputs, references, measures, layouts, {}, reference.notes)
        return replace(made, sums=_sums({**made.arguments(), **_judged_by(references, measures)}))

    def _kept(
        self, references: tuple[torch.Tensor, ...], measures: tuple[Yardstick | ExactYardstick, ...]
    ) -> tuple[tuple[torch.Tensor | Sealed, ...], tuple[Yardstick | ExactYardstick, ...]]:
        """What stays of references and of eager's integers: sealed where candidates could read it."""
        if not self.sealed:
            return references, measures
        homes = [value.untyped_storage().data_ptr() for value in references]
        kept = tuple(
            Sealed(value, in_place=homes.count(home) == 1) for value, home in zip(references, homes, strict=True)
        )
        exact = tuple(
            replace(one, eager=Sealed(opened(one.eager))) if isinstance(one, ExactYardstick) else one
            for one in measures
        )
        return kept, exact

    def _check_size(self) -> None:
        """Refuses what the emulator could not finish, from shapes alone."""
        meta = self.problem.instantiate(device="meta", seed=0)
        tensors = [value for value in meta.inputs if isinstance(value, torch.Tensor)]
        count = sum(value.numel() for value in (*tensors, *meta.parameters.values()))
        if count > EMULATED_ELEMENTS:
            raise UserError(
                f"{self.problem.name} has {count:,} input elements, too many to run on the CPU (at most "
                f"{EMULATED_ELEMENTS:,}): make it smaller with --set NAME=VALUE; "
                f"{self.problem.settable_text()}"
            )


def _named_inputs(inputs: Sequence[Any]) -> dict[str, Argument]:
    return {f"in{n}": value for n, value in enumerate(inputs)}


def _judged_by(
    references: Sequence[torch.Tensor | Sealed], measures: Sequence[Yardstick | ExactYardstick]
) -> dict[str, torch.Tensor | Sealed]:
    """The tensors that candidates are compared with, by name."""
    named: dict[str, torch.Tensor | Sealed] = {f"reference {index}": value for index, value in enumerate(references)}
    exact = {index: one.eager for index, one in enumerate(measures) if isinstance(one, ExactYardstick)}
    return named | {f"eager {index}": value for index, value in exact.items()}


def _sums(arguments: Mapping[str, Argument | Sealed]) -> dict[str, tuple[int, int, int]]:
    return {
        name: checksum(memory_of(value.memory if isinstance(value, Sealed) else value))
        for name, value in arguments.items()
        if isinstance(value, (torch.Tensor, Sealed)) and value.numel()
    }
