"""Float64 references batch by batch, for modules that treat the rows of their inputs independently."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.tools.verification.domains import computable
from warpsmith.tools.verification.memory import MemoryBudget

Run = Callable[[list[Any]], tuple[torch.Tensor, ...]]
"""Outputs in float64 for flat inputs in float64."""
Doubled = Callable[[], Run]
"""Makes a module's copy in float64, with the weights that it has now."""
_SAMPLE = 3
_SAME = 1e-9
"""Difference, relative to the rms, below which float64 results of one row and of several are the same."""
_NEAR = 2.0**-4
"""The same between float64 and eager in any precision: rows of another batch are farther apart."""
_WORKING_COPIES = 6
"""Memory of a batch in sizes of its float64 inputs and outputs: intermediates are not known beforehand."""


@dataclass(frozen=True, slots=True)
class Split:
    """Inputs whose first dimension is the batch, with its size."""

    positions: tuple[int, ...]
    size: int

    def rows(self, inputs: Sequence[Any], picks: torch.Tensor | slice) -> list[Any]:
        """Flat inputs of some rows, in float64."""
        return [upcast(value[picks] if n in self.positions else value) for n, value in enumerate(inputs)]


def upcast(value: Any, device: torch.device | None = None) -> Any:
    """Floating tensors in float64; others, and what is no tensor, as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    moved = value if device is None else value.to(device)
    return moved.double() if moved.is_floating_point() else moved


def find_split(run: Run, inputs: Sequence[Any], produced: Sequence[torch.Tensor]) -> Split | None:
    """The split under which rows are found to be independent, or None. `produced` are eager's outputs for all rows;
    tried on a few rows, alone, together and against those."""
    sizes = {value.shape[0] if value.dim() else 0 for value in produced}
    if len(sizes) != 1 or (size := sizes.pop()) < _SAMPLE:
        return None
    fitting = tuple(
        n for n, value in enumerate(inputs) if isinstance(value, torch.Tensor) and value.dim() and len(value) == size
    )
    tries = [fitting, *((n,) for n in fitting if len(fitting) > 1)]
    return next(
        (Split(one, size) for one in tries if one and _independent(run, inputs, produced, Split(one, size))), None
    )


def _independent(run: Run, inputs: Sequence[Any], produced: Sequence[torch.Tensor], split: Split) -> bool:
    device = next(value.device for value in inputs if isinstance(value, torch.Tensor))
    picks = torch.tensor([0, split.size // 2, split.size - 1], device=device)
    try:
        together = run(split.rows(inputs, picks))
        alone = [run(split.rows(inputs, picks[n : n + 1])) for n in range(_SAMPLE)]
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception:
        # The module does not take such a part of its inputs.
        return False
    for index, whole in enumerate(together):
        parts = [one[index] for one in alone]
        if whole.shape[:1] != (_SAMPLE,) or any(part.shape[:1] != (1,) for part in parts):
            return False
        if not _same(torch.cat(parts), whole, _SAME) or not _same(upcast(produced[index][picks]), whole, _NEAR):
            return False
    return True


def _same(first: torch.Tensor, second: torch.Tensor, tolerance: float) -> bool:
    """Whether two tensors agree; integers may differ at a few elements between precisions."""
    if first.shape != second.shape:
        return False
    if not second.is_floating_point():
        return float((first != second).double().mean()) <= tolerance
    rms = float(computable(second).square().mean().sqrt())
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance * rms, equal_nan=True)


class Rows:
    """A module's outputs in float64 for all rows, had batch by batch whenever they are asked for: nothing of them is
    kept, so nobody can read or change them. Inputs and weights must be what they were."""

    def __init__(self, double: Doubled, inputs: Sequence[Any], split: Split, batch: int) -> None:
        """`batch`: rows at a time."""
        self._double = double
        self._inputs = list(inputs)
        self._split = split
        self._batch = max(1, min(batch, split.size))

    def outputs(self) -> tuple[Rowwise, ...]:
        """All outputs. Asks for one row, which says what they look like."""
        first = self._double()(self._split.rows(self._inputs, slice(0, 1)))
        return tuple(
            Rowwise(self, index, torch.Size((self._split.size, *one.shape[1:])), one.dtype, one.device)
            for index, one in enumerate(first)
        )

    def batches(self, index: int) -> Iterator[torch.Tensor]:
        """One output, some rows at a time, in order. Where memory does not suffice, batches become smaller."""
        run, start = self._double(), 0
        while start < self._split.size:
            try:
                found = run(self._split.rows(self._inputs, slice(start, start + self._batch)))[index]
            except torch.OutOfMemoryError:
                if self._batch == 1:
                    raise
                self._batch = -(-self._batch // 2)
                continue
            start += len(found)
            yield found
            del found


@dataclass(frozen=True, slots=True)
class Rowwise:
    """One output of `Rows`."""

    rows: Rows
    index: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def numel(self) -> int:
        """Elements."""
        return int(self.shape.numel())

    def is_floating_point(self) -> bool:
        """Whether integers or booleans are not what it holds."""
        return self.dtype.is_floating_point

    def pieces(self, most: int) -> Iterator[torch.Tensor]:
        """The elements in row-major order, at most so many at a time."""
        for part in self.rows.batches(self.index):
            yield from torch.split(part.reshape(-1), most)
            del part

    def opened(self) -> torch.Tensor:
        """The whole tensor."""
        found = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        start = 0
        for part in self.rows.batches(self.index):
            found[start : start + len(part)] = part
            start += len(part)
        return found


def batch_rows(inputs: Sequence[Any], split: Split, produced: Sequence[torch.Tensor], memory: MemoryBudget) -> int:
    """How many rows take about the bytes that temporaries may: as eager's own intermediates say where they were
    measured, else by inputs and outputs alone."""
    held = [value for n, value in enumerate(inputs) if n in split.positions] + list(produced)
    row_bytes = sum(8 * value[0].numel() for value in held) * _WORKING_COPIES
    if memory.eager_bytes is not None:
        row_bytes = 3 * memory.eager_bytes // split.size
    return max(1, int(memory.working // max(1, row_bytes)))
