"""What can be timed on several inputs: a candidate, the eager module, the module under torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.cuda.backend import CudaBackend, LoadedCuda
from warpsmith.tools import oracle
from warpsmith.tools.input_sets import InputSet
from warpsmith.tools.inputs import copy_of
from warpsmith.tools.session import Session

COPIES = 20
"""Input and output sets at most: as many as a graph of short kernels replays."""
_TURNS = 3
"""Input sets that long kernels rotate among."""
_COPIES_BYTES = 1 << 30


@dataclass(slots=True)
class Contender:
    """Something that can be run on one of several input sets; `run(0)` is on the set with references."""

    name: str
    run: Callable[[int], object]
    """Enqueues on the current stream."""
    turns: int
    poison: Callable[[int], None]
    """Fills the outputs of a turn."""
    checked_outputs: Callable[[], Sequence[torch.Tensor]]
    """Outputs of the last run on set 0; none for a baseline."""
    failure: Failure | None = None


def turn_inputs(session: Session, inputs: InputSet) -> list[list[Any]]:
    """The judged inputs first, then fresh draws at other addresses, as many as memory allows."""
    size = sum(value.nbytes for value in inputs.inputs if isinstance(value, torch.Tensor))
    size += sum(output.nbytes for output in session.outputs(inputs.layouts)[0].payloads)
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    count = COPIES if size * COPIES <= _COPIES_BYTES else _TURNS
    while count > 1 and size * (count - 1) > free // 3:
        count -= 1
    found = [inputs.inputs]
    for turn in range(1, count):
        found.append(session.fresh(turn) if turn < _TURNS else _copied(found[turn % _TURNS]))
    return found


def candidate_contender(
    name: str, backend: CudaBackend, loaded: LoadedCuda, inputs: InputSet, session: Session
) -> Contender:
    """The plan bound to each input set and to output buffers of its own."""
    turns = session.turns(inputs, turn_inputs)
    outputs = session.turn_outputs(inputs.layouts, len(turns))
    parameters = {k: v for k, v in inputs.arguments().items() if k.startswith("param:")}
    loaded.fill_scratch(0xFF)
    bound = []
    for values, outs in zip(turns, outputs, strict=True):
        named = {f"in{n}": value for n, value in enumerate(values)}
        bound.append(loaded.bind({**named, **parameters, **outs.named()}))
    bound[0].prepare()
    return Contender(
        name, lambda turn: bound[turn].enqueue(), len(turns), lambda turn: outputs[turn].poison(0xFF),
        lambda: outputs[0].tensors,
    )  # fmt: skip


def module_contenders(session: Session, inputs: InputSet, names: Sequence[str]) -> tuple[list[Contender], list[str]]:
    """Eager and compiled forms of the problem's own module. One that does not work is left out with a
    note."""
    turns = session.turns(inputs, turn_inputs)
    structure = inputs.instance.structure
    arguments = [pytree.tree_unflatten(list(values), structure) for values in turns]
    found: list[Contender] = []
    notes: list[str] = []
    for name in names:
        module = _module(session, inputs, name, arguments[0])
        if isinstance(module, str):
            notes.append(f"baseline `{name}` left out: {module}")
        else:
            found.append(Contender(name, _caller(module, arguments), len(turns), lambda turn: None, lambda: ()))
    return found, notes


def _caller(module: Any, arguments: Sequence[Any]) -> Callable[[int], object]:
    def run(turn: int) -> None:
        with torch.no_grad():
            module(*arguments[turn])

    return run


def _module(session: Session, inputs: InputSet, name: str, arguments: Any) -> Any:
    """The module to call, warmed up, or the reason why there is none."""
    if name == "eager":
        return inputs.instance.module
    if name not in session.compiled:
        mode = "default" if name == "compile" else name
        try:
            module = torch.compile(inputs.instance.module, mode=mode)
            with torch.no_grad():
                for _ in range(3):
                    module(*arguments)
            torch.cuda.synchronize()
            session.compiled[name] = module
        except Exception as error:
            if oracle.is_out_of_memory(error):
                torch.cuda.empty_cache()
            lines = str(error).strip().splitlines() or [type(error).__name__]
            session.compiled[name] = f"torch.compile failed: {lines[0][:200]}"
    return session.compiled[name]


def _copied(values: Sequence[Any]) -> list[Any]:
    """The same contents at new addresses, strides kept."""
    return [copy_of(value) if isinstance(value, torch.Tensor) else value for value in values]
