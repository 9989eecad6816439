"""What a module holds beside its tensors: forward has to leave it as it was, else the next call computes another
function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels.errors import UserError


class PlainState:
    """Numbers, texts and lists that a module and its parts hold. The rules on the text know no aliases
    (`a = self.items` and then `a[0] = 1`); this looks at what came of them."""

    def __init__(self, path: Path, module: torch.nn.Module) -> None:
        """Raises UserError where something is held that ends (a generator): the next call would find it used up."""
        self._path = path
        self._alive: list[object] = []
        self._found = [(name, self._of_part(name, part)) for name, part in module.named_modules(remove_duplicate=False)]

    def check_unchanged(self, module: torch.nn.Module) -> None:
        """Raises UserError naming the part that holds something else by now."""
        now = PlainState(self._path, module)._found
        if now != self._found:
            changed = [name for name, values in now if (name, values) not in self._found]
            where = f"self.{changed[0]}" if changed and changed[0] else "self"
            raise UserError(
                f"{self._path}: forward changes what {where} holds, which outlives the call: the next call would "
                "compute something else; make the value new in each call"
            )

    def _of_part(self, name: str, part: torch.nn.Module) -> tuple[Any, ...]:
        own = not type(part).__module__.startswith("torch.")
        held = [(key, self._of(value, own, ())) for key, value in vars(part).items() if not key.startswith("_")]
        tensors = (*part._parameters, *part._buffers)
        return (self._identity(part), sorted(held), tensors)

    def _of(self, value: object, own: bool, above: tuple[int, ...]) -> Any:
        """A value as something to compare. `own`: the part is of a class of the module; torch exchanges tensors in
        its own."""
        if isinstance(value, Iterator):
            raise UserError(
                f"{self._path}: self holds a generator, zip or enumerate, which one call uses up: write tuple(...) "
                "around it"
            )
        if isinstance(value, list | tuple):
            if id(value) in above:
                return "itself"
            return (type(value).__name__, tuple(self._of(one, own, (*above, id(value))) for one in value))
        if value is None or isinstance(value, bool | int | float | complex | str):
            return f"{type(value).__name__} {value!r}"
        direct = isinstance(value, torch.Tensor) and not above
        return self._identity(value) if own and not direct else type(value).__name__

    def _identity(self, value: object) -> str:
        # Kept, so that no other object gets its number. A tensor counts the changes that were made in it.
        self._alive.append(value)
        return f"object {id(value)} {value._version if isinstance(value, torch.Tensor) else 0}"
