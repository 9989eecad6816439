"""Outputs that a library computes into memory of its own: a caller is given that memory, as eager gives it, and a copy
is made only for whoever looks at the place that an output has here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from warpsmith.kernels.library import leaves_its_result
from warpsmith.kernels.records import LaunchPlan, LibraryStep
from warpsmith.sandbox.backend import Argument
from warpsmith.sandbox.cuda.library import library_result
from warpsmith.sandbox.results import Bind, Launch, Step


def left_outputs(plan: LaunchPlan) -> frozenset[str]:
    """Outputs whose only step is one of a library that can just give a tensor of its own; none of a plan that is
    recorded as a graph, whose outputs lie where they lay."""
    if plan.graph:
        return frozenset()
    steps = [step for step in plan.steps if isinstance(step, LibraryStep)]
    lone = {step.out for step in steps if _is_output(step.out) and leaves_its_result(step.library, step.kwargs)}
    lone -= {view.of for view in plan.views.values()}
    lone -= {name for step in (*plan.prepare, *plan.steps) for name in step.named}
    return frozenset(name for name in lone if sum(step.out == name for step in steps) == 1)


def _is_output(name: str) -> bool:
    return name.startswith("out") and name[3:].isdigit()


@dataclass(slots=True)
class LeftOutputs:
    """Those of one bound plan."""

    names: frozenset[str]
    values: Mapping[str, Argument]
    """Where they are to be found at last, among others."""
    _found: dict[str, torch.Tensor] = field(default_factory=dict)

    def binding(self, otherwise: Callable[[Step, dict[str, Argument]], Launch]) -> Bind:
        """Binds steps, those that compute none of them by `otherwise`."""

        def bind(step: Step, there: Mapping[str, torch.Tensor]) -> Launch:
            if isinstance(step, LibraryStep) and step.out in self.names:
                return self._leaving(step, there)
            return otherwise(step, {**self.values, **there})

        return bind

    def _leaving(self, step: LibraryStep, there: Mapping[str, torch.Tensor]) -> Launch:
        """The step that computes one of them; LibraryError as `library_result`."""
        target = self.values[step.out]
        assert isinstance(target, torch.Tensor)
        like = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype, device="meta")
        compute = library_result(step, {**self.values, **there}, like)

        def run() -> None:
            # First, so that its memory is there for the next one.
            self._found.pop(step.out, None)
            self._found[step.out] = compute()

        return run

    def deliver(self) -> None:
        """Enqueues copies into the places of what the last run has left."""
        for name, found in self._found.items():
            target = self.values[name]
            assert isinstance(target, torch.Tensor)
            target.copy_(found)
