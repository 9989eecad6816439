"""What can be timed: a candidate, the eager module, the module under torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from warpsmith.sandbox.cuda.backend import LoadedCuda
from warpsmith.sandbox.cuda.memory import free_bytes
from warpsmith.tools.measurement.quiet_compile import Turn, in_turns
from warpsmith.tools.measurement.stage import MASTERS, Stage, places_for
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.session import Session

Run = Callable[[int], object]
"""Enqueues the work on the inputs of one place, on the current stream."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to be timed."""

    name: str
    bind: Callable[[Stage], Run]
    """For the addresses that the stage has now."""
    foreign: bool = False
    """Whether it runs code of others."""
    refresh: Callable[[int], None] = lambda byte: None
    """Overwrites the contender's own memory with a byte, so that no run finds what an earlier one left."""


def stage_for(session: Session, inputs: InputSet, *, short: bool) -> Stage:
    """The session's stage for short kernels (many places for a graph) or for others (one place)."""
    size = sum(value.nbytes for value in inputs.inputs if isinstance(value, torch.Tensor))
    size += sum(layout.bytes for layout in inputs.layouts)
    free = free_bytes()
    places = places_for(size, free) if short else 1
    if places not in session.stages:
        count = max(MASTERS, places)
        while count > 1 and size * count > free // 3:
            count -= 1
        masters = [inputs.inputs, *(session.fresh(turn) for turn in range(1, count))]
        session.stages[places] = Stage(session.cuda(), masters, inputs.layouts, places)
    return session.stages[places]


def candidate_contender(name: str, loaded: LoadedCuda, inputs: InputSet) -> Contender:
    """The plan with its load-time steps done once."""
    parameters = {k: v for k, v in inputs.arguments().items() if k.startswith("param:")}
    prepared = False

    def bind(stage: Stage) -> Run:
        nonlocal prepared
        bound = []
        for values, outputs in zip(stage.arguments, stage.outputs, strict=True):
            named = {f"in{n}": value for n, value in enumerate(values)}
            bound.append(loaded.bind({**named, **parameters, **outputs.named()}))
        if not prepared:
            loaded.fill_scratch(0xFF)
            bound[0].prepare()
            loaded.keep_prepared()
            prepared = True
        return lambda place: bound[place].enqueue()

    return Contender(name, bind, foreign=True, refresh=loaded.refresh_scratch)


def module_contenders(session: Session, inputs: InputSet, names: Sequence[str]) -> tuple[list[Contender], list[str]]:
    """Eager and compiled forms of the problem's own module. One that does not work is left out with a
    note."""
    structure = inputs.instance.structure
    first = pytree.tree_unflatten(list(inputs.inputs), structure)
    found: list[Contender] = []
    notes: list[str] = []
    for name in names:
        module = _module(session, inputs, name, first)
        if isinstance(module, str):
            notes.append(f"baseline `{name}` left out: {module}")
        else:
            found.append(Contender(name, _binder(module, structure)))
    return found, notes


def _binder(module: Any, structure: Any) -> Callable[[Stage], Run]:
    def bind(stage: Stage) -> Run:
        arguments = [pytree.tree_unflatten(list(values), structure) for values in stage.arguments]

        def run(place: int) -> None:
            with torch.no_grad():
                module(*arguments[place])

        return run

    return bind


def _module(session: Session, inputs: InputSet, name: str, arguments: Any) -> Any:
    """The module to call, warmed up, or the reason why there is none."""
    if name == "eager":
        return inputs.instance.module
    if name not in session.compiled:
        session.compiled[name] = compiled(inputs.instance.module, name, arguments)
    return session.compiled[name]


def compiled(module: torch.nn.Module, name: str, arguments: Any, turn: Turn | None = None) -> Any:
    """The module under a mode of torch.compile, warmed up, or the reason why there is none. With `turn`, compiled while
    others time something: its runs wait for their turn on the device."""
    mode = "default" if name == "compile" else name
    try:
        made = torch.compile(module, backend=in_turns(mode, turn)) if turn else torch.compile(module, mode=mode)
        with torch.no_grad():
            for _ in range(3):
                made(*arguments)
        torch.cuda.synchronize()
    except Exception as error:
        if oracle.is_out_of_memory(error):
            torch.cuda.empty_cache()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"torch.compile failed: {lines[0][:200]}"
    return made
