"""What can be timed: a candidate, the eager module, the module under torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.cuda.backend import LoadedCuda
from warpsmith.sandbox.cuda.bound import Bound
from warpsmith.sandbox.cuda.memory import free_bytes
from warpsmith.tools.measurement.baseline_records import MAX_AUTOTUNE
from warpsmith.tools.measurement.quiet_compile import Gate, in_turns
from warpsmith.tools.measurement.stage import (
    FEW_PLACES,
    MASTERS,
    PLACES_BYTES,
    Cleaner,
    Stage,
    flush_bytes,
    places_for,
    slack_for,
)
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.instances import bytes_of
from warpsmith.tools.verification.session import Session

_UNKNOWN_RUN = 4
"""Peaks of eager that a baseline nobody has measured may take beside its inputs, where there is as much to be had."""
_WARM_RUNS = 3
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
    deliver: Callable[[int], object] = lambda place: None
    """Puts the outputs of the last run on a place where they are looked at."""
    damage: Callable[[], Failure | None] = lambda: None
    """What its runs have done beside memory of its own, if anything."""


def stage_for(session: Session, inputs: InputSet, *, short: bool, beside: Sequence[str] = ()) -> Stage:
    """The session's stage for short kernels (many places for a graph) or for others (one place), with room for runs of
    the baselines `beside`."""
    given = sum(value.nbytes for value in _tensors(inputs.inputs))
    size = given + sum(layout.bytes for layout in inputs.layouts)
    # What was set up with other contents says nothing about these: outputs are held against these references.
    for number in [number for number, stage in session.stages.items() if stage.judged is not inputs.inputs]:
        del session.stages[number]
    many = next((stage for number, stage in session.stages.items() if number > 1), None)
    if short and many is not None:
        return many
    places = _many_places(session, size) if short else 1
    backend = session.backend
    assert isinstance(backend, Cleaner)
    # The largest run has to fit beside the stage, and a candidate's scratch.
    needed = session.run_bytes(given, beside) + session.scratch_bytes
    if places in session.stages and session.stages[places].beside >= needed:
        return session.stages[places]
    session.stages.pop(places, None)
    flush = flush_bytes(backend.torch_device)
    session.make_room(places * size + needed + flush, timed=inputs)
    session.lighten(inputs, size - given + needed + flush)
    room = _room(session) - needed - flush
    tensors = places * (len(_tensors(inputs.inputs)) + len(inputs.layouts))
    slack = slack_for(tensors, room)
    room -= slack * (tensors + 1)
    count = max(MASTERS, places)
    while count > 1 and places * size + (count - 1) * given > room:
        count -= 1
    in_place = places == 1 and room < size
    try:
        masters = [inputs.inputs, *(session.fresh(turn) for turn in range(1, count))]
        made = Stage(backend, masters, inputs.layouts, places, in_place=in_place, slack=slack)
    except Exception as error:
        if not oracle.is_out_of_memory(error) or in_place or places > 1:
            raise
        made = None
    if made is None:
        # There was room in all, but not in one piece.
        session.release()
        made = Stage(backend, [inputs.inputs], inputs.layouts, places, in_place=True, slack=slack)
    made.beside = needed
    session.stages[places] = made
    return made


def _many_places(session: Session, size: int) -> int:
    """Places for short kernels, whose inputs and outputs take `size` bytes. Kept sets that are in the way of a few are
    given up where that is sure to help."""
    wanted = 3 * FEW_PLACES * size
    if wanted <= min(PLACES_BYTES, (session.memory.bound or PLACES_BYTES) // 2):
        session.make_room(wanted, buffers=False)
    return places_for(size, _room(session))


def _room(session: Session) -> int:
    """Bytes that may still be taken."""
    room = session.memory.room()
    return free_bytes() if room is None else room


def candidate_contender(name: str, loaded: LoadedCuda, inputs: InputSet) -> Contender:
    """The plan with its load-time steps done once."""
    parameters = {k: v for k, v in inputs.arguments().items() if k.startswith("param:")}
    prepared = False

    bound: list[Bound] = []

    def bind(stage: Stage) -> Run:
        nonlocal prepared
        bound.clear()
        for values, outputs in zip(stage.arguments, stage.outputs, strict=True):
            named = {f"in{n}": value for n, value in enumerate(values)}
            bound.append(loaded.bind({**named, **parameters, **outputs.named()}))
        if not prepared:
            loaded.fill_scratch(0xFF)
            bound[0].prepare()
            loaded.keep_prepared()
            prepared = True
        now = tuple(bound)
        return lambda place: now[place].call()

    return Contender(
        name, bind, foreign=True, refresh=loaded.refresh_scratch, deliver=lambda place: bound[place].deliver(),
        damage=loaded.guards_kept,
    )  # fmt: skip


def module_contenders(session: Session, inputs: InputSet, names: Sequence[str]) -> tuple[list[Contender], list[str]]:
    """Eager and compiled forms of the problem's own module. One that does not work is left out with a
    note. To be called without the device's turn: compilers take seconds, in which others can time something."""
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
        # Its outputs, and where it replays a graph, inputs and outputs of its own; how much else nobody knows.
        session.make_room(_UNKNOWN_RUN * (session.memory.eager_bytes or 0), timed=inputs)
        session.compiled[name] = _measured(session, inputs, name, arguments)
    return session.compiled[name]


def _measured(session: Session, inputs: InputSet, name: str, arguments: Any) -> Any:
    """The module under a mode of torch.compile; notes what it takes."""
    own = bytes_of([*inputs.instance.parameters.values(), *_tensors(inputs.inputs)])
    with session.memory.run() as taken:
        made = _compiled_quietly(session, inputs, name, arguments)
    if not isinstance(made, str):
        session.baseline_peaks[name] = own + taken.bytes
        with session.alone(shared=True), session.memory.run() as taken:
            refused = _warmed(made, arguments, 1)
        session.runs[name] = taken.bytes
        made = refused or made
    return made


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _compiled_quietly(session: Session, inputs: InputSet, name: str, arguments: Any) -> Any:
    if name == MAX_AUTOTUNE:
        # It measures while it compiles.
        with session.alone():
            return compiled(inputs.instance.module, name, arguments)
    gate = Gate(partial(session.alone, shared=True))
    made = compiled(inputs.instance.module, name, arguments, gate)
    # From here on it is run by those who have the device to themselves.
    gate.open = True
    return made


def compiled(module: torch.nn.Module, name: str, arguments: Any, gate: Gate | None = None) -> Any:
    """The module under a mode of torch.compile, warmed up, or the reason why there is none. With `gate`, compiled while
    others time something: its runs wait for their turn on the device."""
    mode = "default" if name == "compile" else name
    made = torch.compile(module, backend=in_turns(mode, gate)) if gate else torch.compile(module, mode=mode)
    return _warmed(made, arguments, _WARM_RUNS) or made


def _warmed(module: Any, arguments: Any, runs: int) -> str | None:
    """Runs a compiled module so many times and waits; what went wrong, if anything did."""
    try:
        with torch.no_grad():
            for _ in range(runs):
                module(*arguments)
        torch.cuda.synchronize()
    except Exception as error:
        if oracle.is_out_of_memory(error):
            torch.cuda.empty_cache()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"torch.compile failed: {lines[0][:200]}"
    return None
