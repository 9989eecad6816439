"""One problem's modules on one device: as its file makes them, with moved weights, with whole weights."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Instance, Problem
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.checksums import sums_of
from warpsmith.tools.verification.domains import InputDomain, domain_of
from warpsmith.tools.verification.inputs import WHOLE, Kind, perturb_parameters, round_parameters
from warpsmith.tools.verification.memory import TIMES_EAGER, MemoryBudget
from warpsmith.tools.verification.oracle import Traits

EMULATED_ELEMENTS = 1 << 25
"""Inputs and outputs beyond this many elements would keep the emulator busy for many minutes."""
_WHOLE_BYTES = 1 << 28
"""Weights beyond this many bytes are not kept a third time."""
_HEAVY = 8
"""Two copies of weights that take less than this part of eager's peak do not matter."""


@dataclass(slots=True)
class Instances:
    """Instances are made at their first use under a secret seed."""

    problem: Problem
    device: torch.device
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    domains: list[InputDomain] = field(default_factory=list)
    traits: Traits = field(default_factory=Traits)
    """What forward does; all four are known once `shipped` has been used."""
    least_outputs: int = 0
    """Elements of the output that has the fewest."""
    weight_bytes: int = 0
    """Of floating parameters and buffers."""
    _seed: int = field(default_factory=lambda: new_seed())
    _shipped: Instance | None = None
    _perturbed: Instance | None = None
    _whole: Instance | None = None
    _known: bool = False
    """Whether `shipped` has been looked at."""

    @property
    def shipped(self) -> Instance:
        """The problem as its file makes it."""
        if self._shipped is None and self._known:
            self._let_go()
            self._shipped = self._again(0)
        elif self._shipped is None:
            self._shipped = self._first()
        return self._shipped

    def fresh_inputs(self, seed: int) -> list[Any]:
        """Another draw of the shipped inputs."""
        return (self._shipped or self._perturbed or self._whole or self.shipped).fresh_inputs(seed)

    def _first(self) -> Instance:
        """The problem as its file makes it, with what is to be known of it."""
        if self.device.type == "cpu":
            self._check_size()
        made = self.problem.instantiate(device=str(self.device), seed=self._seed)
        before = sums_of(named_inputs(made.inputs))
        # One draw at a time: two may not fit.
        made.inputs = []
        again = made.fresh_inputs(self._seed + 3)
        after = sums_of(named_inputs(again))
        still = [f"in{n}" in after and before.get(f"in{n}") == after[f"in{n}"] for n in range(len(again))]
        self.domains = [domain_of(value, still=one) for value, one in zip(again, still, strict=True)]
        self.weight_bytes = sum(tensor.nbytes for tensor in _state(made) if tensor.is_floating_point())
        self._look(made, again, after)
        self._known = True
        return made

    def varied(self, kind: Kind) -> Instance:
        """The instance whose weights suit a kind of inputs: away from ones and zeros, or whole with whole inputs."""
        if not self._known:
            self._shipped = self.shipped
        if not self.weight_bytes:
            return self.shipped
        if kind.name == WHOLE and self.weight_bytes <= _WHOLE_BYTES:
            if self._whole is None:
                self._let_go()
                self._whole = self._again(1)
                round_parameters(self._whole, seed=self._seed + 2)
            return self._whole
        if self._perturbed is None:
            self._let_go()
            self._perturbed = self._again(1)
            perturb_parameters(self._perturbed, seed=self._seed + 1)
        return self._perturbed

    def _let_go(self) -> None:
        """Before another instance is made: where weights are most of what eager holds, one at a time has to do. Their
        seeds make them again."""
        bound, most = self.memory.bound, self.memory.eager_bytes or 0
        heavy = 2 * _HEAVY * self.weight_bytes > most
        if bound is not None and heavy and TIMES_EAGER * most + 2 * self.weight_bytes > bound:
            self._shipped = self._perturbed = self._whole = None

    def reset(self) -> None:
        """Makes everything anew at the next use, under a new seed."""
        self._seed = new_seed()
        self._shipped = self._perturbed = self._whole = None
        self._known = False

    def _again(self, step: int) -> Instance:
        made = self.problem.instantiate(device=str(self.device), seed=self._seed + step)
        made.inputs = []
        return made

    def _look(self, instance: Instance, inputs: list[Any], sums: dict[str, tuple[int, int]]) -> None:
        """Finds the traits of forward; UserError for what cannot be judged."""
        own = [*instance.parameters.values(), *(value for value in inputs if isinstance(value, torch.Tensor))]
        try:
            with self.memory.eager(bytes_of(own)):
                self.traits, counts = oracle.traits(instance, inputs)
            self.least_outputs = min(counts, default=0)
        except oracle.Undefined as error:
            cause = error.__cause__ or error
            raise oracle.explained(self.problem, cause) from error
        path = self.problem.path
        now = sums_of(named_inputs(inputs))
        changed = [name for name, total in sums.items() if now[name] != total]
        if changed:
            raise UserError(f"{path}: forward changes {changed[0]} in place; return a new tensor instead")
        apart = oracle.differs_by_run(instance, inputs)
        if apart is not None and self.traits.random:
            names = ", ".join(sorted(self.traits.random))
            raise UserError(
                f"{path}: forward draws random numbers ({names}): no kernel can give the same; use --mode eval"
            )
        if apart is not None:
            raise UserError(
                f"{path}: out{apart} changes from run to run on the same inputs: no kernel can give the same; take out "
                "what forward counts, keeps or draws at random outside of its inputs"
            )

    def _check_size(self) -> None:
        """Refuses what the emulator could not finish, from shapes alone."""
        dry, _ = oracle.dry_run(self.problem)
        tensors = [value for value in dry.inputs if isinstance(value, torch.Tensor)]
        count = sum(value.numel() for value in (*tensors, *dry.parameters.values()))
        if count > EMULATED_ELEMENTS:
            raise UserError(
                f"{self.problem.name} has {count:,} input elements, too many to run on the CPU (at most "
                f"{EMULATED_ELEMENTS:,}): make it smaller with --set NAME=VALUE; "
                f"{self.problem.settable_text()}"
            )


def new_seed() -> int:
    """A secret seed, not used before."""
    return int.from_bytes(os.urandom(7), "big")


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Memory behind tensors, what several share counted once."""
    return sum({one.data_ptr(): one.nbytes() for one in map(torch.Tensor.untyped_storage, tensors)}.values())


def named_inputs(inputs: list[Any]) -> dict[str, Any]:
    """`inN` for a launch."""
    return {f"in{n}": value for n, value in enumerate(inputs)}


def _state(instance: Instance) -> list[torch.Tensor]:
    return [*instance.module.parameters(), *instance.module.buffers()]
