"""Compiles a module without disturbing what others time: only what runs on the device waits for its turn there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Turn = Callable[[], contextlib.AbstractContextManager[None]]
"""Held while something runs on the device."""


@dataclass(slots=True)
class Gate:
    """Before it is open, each run waits for its turn and for its end; afterwards whoever calls has the turn."""

    turn: Turn
    open: bool = False


def in_turns(mode: str, gate: Gate) -> Callable[[Any, Any], Callable[..., Any]]:
    """A backend of torch.compile that makes what a mode of the default backend makes, under the same keys of the cache
    on disk, and runs it as `gate` allows. `mode` must not be one that measures while it compiles."""
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    options = list_mode_options(mode) if mode != "default" else {}

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        made: Any = compile_fx(graph, inputs, config_patches=options)

        def run(*arguments: Any) -> Any:
            if gate.open:
                return made(*arguments)
            with gate.turn():
                found = made(*arguments)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
            return found

        return run

    return backend
