"""The ATen operators that a plan may call, each writing into a tensor that the launcher owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

ALLOWED: dict[str, Callable[..., torch.Tensor]] = {
    "mm": torch.mm,
    "bmm": torch.bmm,
    "addmm": torch.addmm,
    "matmul": torch.matmul,
}
KEYWORDS = {"addmm": frozenset({"alpha", "beta"})}
"""What an operator takes by name, all of it numbers."""


class LibraryError(Exception):
    """A library step that is not allowed or whose arguments do not fit."""


def library_call(
    name: str,
    arguments: Sequence[str | Mapping[str, int | float]],
    out: str,
    keywords: Mapping[str, Any],
    values: Mapping[str, torch.Tensor | int | float],
) -> Callable[[], object]:
    """A function that runs the step on the current stream. LibraryError for what is outside the
    allow-list."""
    if name not in ALLOWED:
        raise LibraryError(f"library operator {name!r} is not allowed; there is {', '.join(sorted(ALLOWED))}")
    unknown = set(keywords) - KEYWORDS.get(name, frozenset())
    if unknown:
        raise LibraryError(f"{name} takes no keyword {', '.join(sorted(unknown))} here")
    given: list[torch.Tensor | int | float] = []
    for argument in arguments:
        if not isinstance(argument, str):
            if len(argument) != 1:
                raise LibraryError(f"{name}: a typed scalar has exactly one type")
            given.append(next(iter(argument.values())))
        elif argument in values:
            given.append(values[argument])
        else:
            raise LibraryError(f"{name}: nothing is called {argument!r}")
    target = values.get(out)
    if not isinstance(target, torch.Tensor) or out.startswith(("in", "param:")):
        raise LibraryError(f"{name}: {out!r} is no output or scratch buffer")
    operator, shape = ALLOWED[name], target.shape

    def run() -> None:
        try:
            operator(*given, out=target, **keywords)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, IndexError, ValueError, OverflowError) as error:
            text = str(error).splitlines() or [type(error).__name__]
            raise LibraryError(f"{name}: {text[0]}") from error
        if target.shape != shape:
            raise LibraryError(f"{name} gives the shape {tuple(target.shape)}, {out} has {tuple(shape)}")

    return run
