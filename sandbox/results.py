"""Results of library steps that stay where the library has put them: a plan's buffers with `init: result`.

Nothing is there before the step that computes one, so whatever names it is bound when a run has come so far, and the
memory goes back with the last step that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from warpsmith.kernels.indexing import row_major
from warpsmith.kernels.records import Buffer, KernelStep, LaunchPlan, LibraryStep, View

Step = KernelStep | LibraryStep
Launch = Callable[[], object]
Bind = Callable[[Step, Mapping[str, torch.Tensor]], Launch]
"""Binds a step, these results being there."""
Computing = Callable[[LibraryStep, Mapping[str, torch.Tensor], torch.Tensor], Callable[[], torch.Tensor]]
"""Binds a library step whose result stays where it is, these being there; `like` says how it has to lie."""
_KEPT = 4
"""Bindings of one step that are kept: memory that is given back and taken again has the same few addresses."""


def result_names(plan: LaunchPlan) -> frozenset[str]:
    """Buffers that the launcher takes no memory for."""
    return frozenset(name for name, buffer in plan.buffers.items() if buffer.init == "result")


def like(buffer: Buffer) -> torch.Tensor:
    """How a result has to lie, without memory."""
    strides = buffer.strides or row_major(buffer.shape)
    return torch.empty_strided(buffer.shape, strides, dtype=getattr(torch, buffer.dtype), device="meta")


def fault_of(plan: LaunchPlan) -> tuple[str, str] | None:
    """Why a plan's results would not be there for those that read them: the place in the plan, and a sentence."""
    names = result_names(plan)
    for name, buffer in plan.buffers.items():
        why = _strides_fault(buffer)
        if why is not None:
            return f"buffers.{name}.strides", why
    outs = [step.out if isinstance(step, LibraryStep) else None for step in plan.steps]
    for name in sorted(names):
        if outs.count(name) != 1:
            times = outs.count(name)
            return f"buffers.{name}.init", f"a result is the `out` of one library step in `steps`, not of {times}"
    for index, step in enumerate(plan.prepare):
        for name in names & _touched(plan, step):
            return f"prepare[{index}]", f"{name} is a library's result, which is there during a run alone"
    for index, step in enumerate(plan.steps):
        for name in names & _touched(plan, step):
            first = outs.index(name)
            if index != first and isinstance(step, LibraryStep) and plan.base(step.out) == name:
                return f"steps[{index}].out", f"{name} is a library's result, of which no part is written"
            if index < first or (index == first and name in {plan.base(one) for one in step.named}):
                return f"steps[{index}]", f"{name} is read before steps[{first}] has computed it"
    return None


def _strides_fault(buffer: Buffer) -> str | None:
    if buffer.strides is None:
        return None
    if buffer.init != "result":
        return "buffers of the launcher's own are row-major, only a result has strides; let a view say how to read them"
    if len(buffer.strides) != len(buffer.shape):
        return "one stride for each dimension"
    pairs = zip(buffer.strides, buffer.shape, strict=True)
    expected = 1
    for stride, size in sorted(pair for pair in pairs if pair[1] != 1):
        if stride != expected:
            return "elements of a result lie side by side, in an order that its strides tell"
        expected *= size
    return None


def _touched(plan: LaunchPlan, step: Step) -> set[str]:
    """What a step reads or writes."""
    written = {plan.base(step.out)} if isinstance(step, LibraryStep) else set()
    return written | {plan.base(name) for name in step.named}


def named_on(name: str, tensor: torch.Tensor, views: Mapping[str, View]) -> dict[str, torch.Tensor]:
    """A result and the views of a plan that lie on it, by name."""
    found = {name: tensor}
    for other, view in views.items():
        if view.of == name:
            found[other] = tensor.as_strided(view.shape, view.strides, tensor.storage_offset() + view.offset)
    return found


@dataclass(slots=True)
class Results:
    """What the library steps of one bound plan have computed and later steps still read."""

    plan: LaunchPlan
    names: frozenset[str] = field(init=False)
    _held: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """By buffer: the result and the views on it, by name."""

    def __post_init__(self) -> None:
        self.names = result_names(self.plan)

    @property
    def held(self) -> tuple[str, ...]:
        """The results that are there now."""
        return tuple(self._held)

    def read(self, step: Step) -> frozenset[str]:
        """The results that a step reads."""
        return self.names & {self.plan.base(name) for name in step.named}

    def launches(self, steps: Iterable[Step], bind: Bind, computing: Computing) -> list[Launch]:
        """The steps in order. Those that neither read nor leave a result are bound at once."""
        steps = tuple(steps)
        last = {name: place for place, step in enumerate(steps) for name in self.read(step)}
        made: list[Launch] = []
        for place, step in enumerate(steps):
            over = frozenset(name for name, at in last.items() if at == place)
            if isinstance(step, LibraryStep) and step.out in self.names:
                made.append(self._leaving(step, computing, over, wanted=step.out in last))
            elif self.read(step):
                made.append(self._reading(step, bind, over))
            else:
                made.append(bind(step, {}))
        return made

    def _there(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Results and views on them; those whose step has not run are missing."""
        return {name: one for base in names for name, one in self._held.get(base, {}).items()}

    def _leaving(self, step: LibraryStep, computing: Computing, over: frozenset[str], *, wanted: bool) -> Launch:
        """A library step that leaves a result."""
        shape = like(self.plan.buffers[step.out])
        reads = self.read(step)
        bound = None if reads else computing(step, {}, shape)

        def run() -> None:
            found = (bound or computing(step, self._there(reads), shape))()
            self._drop(over)
            if wanted:
                self._held[step.out] = named_on(step.out, found, self.plan.views)

        return run

    def _reading(self, step: Step, bind: Bind, over: frozenset[str]) -> Launch:
        """A step that reads results: a kernel's binding holds addresses alone and serves again where they are the
        same."""
        reads = self.read(step)
        kept: dict[tuple[int, ...], Launch] = {}

        def run() -> None:
            there = self._there(reads)
            addresses = tuple(tensor.data_ptr() for tensor in there.values())
            launch = kept.get(addresses) or bind(step, there)
            launch()
            if isinstance(step, KernelStep) and addresses not in kept:
                if len(kept) == _KEPT:
                    kept.clear()
                kept[addresses] = launch
            self._drop(over)

        return run

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._held.pop(name, None)
