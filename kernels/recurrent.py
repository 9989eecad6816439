"""Recurrent layers while a module is traced: they stay whole in the graph, and only their shapes are worked out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from warpsmith.kernels.one_thread import one_thread
from warpsmith.kernels.tracing import ONE_AT_A_TIME


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Keeps the tracer from walking through every step of a recurrent layer to know the shape of its result, which
    takes a minute for 512 steps of six layers: a cell's state has the shape of the one before.

    The cells are functions of torch._decomp that nothing but those shapes comes from; where a release has none, tracing
    takes longer. For one thread at a time.
    """
    from torch._decomp import decompositions

    known: Any = decompositions
    cells = {"gru_cell": _same_state, "lstm_cell": _same_states}
    before = {name: getattr(known, name) for name in cells if hasattr(known, name)}
    try:
        for name in before:
            setattr(known, name, cells[name])
        yield
    finally:
        for name, function in before.items():
            setattr(known, name, function)


def _same_state(step: Any, hidden: Any, *weights: Any) -> Any:
    del step, weights
    return hidden


def _same_states(step: Any, hidden: Any, cell: Any, *weights: Any, **options: Any) -> tuple[Any, Any]:
    del step, weights, options
    return hidden, cell


@contextmanager
def steps_left_out(module: torch.nn.Module) -> Iterator[None]:
    """The same for a module that is called on the meta device: where it has recurrent layers, they take a moment in
    place of seconds. Others are left alone, as torch's own functions for shapes are faster there."""
    if not any(isinstance(part, torch.nn.RNNBase) for part in module.modules()):
        yield
        return
    with one_thread, ONE_AT_A_TIME, enable_python_dispatcher(), shapes_alone():
        yield
