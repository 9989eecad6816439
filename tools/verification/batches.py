"""Float64 references batch by batch, for modules that treat the rows of their inputs independently."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.tools.verification.domains import computable
from warpsmith.tools.verification.memory import MemoryBudget, budget_of

Run = Callable[[list[Any]], tuple[torch.Tensor, ...]]
"""Outputs in float64 for flat inputs in float64."""
Doubled = Callable[[], Run]
"""Makes a module's copy in float64, with the weights that it has now."""
_SAMPLE = 3
_PIECE = 1 << 23
"""Elements compared at a time."""
_EACH = 8 * 8
"""Bytes of temporaries for each."""
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

    def whole(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs that every row needs."""
        return [value for n, value in enumerate(inputs) if n not in self.positions]


def upcast(value: Any, device: torch.device | None = None) -> Any:
    """Floating tensors in float64; others, and what is no tensor, as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    moved = value if device is None else value.to(device)
    return moved.double() if moved.is_floating_point() else moved


def wide_bytes(values: Sequence[Any]) -> int:
    """What floating tensors among these take in float64 beside what they are."""
    return sum(
        8 * one.numel()
        for one in values
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.dtype is not torch.float64
    )


def bounded(run: Run, memory: MemoryBudget) -> Run:
    """The same within what `memory` allows where that will do: libraries have ways that take more and ways that take
    less."""

    def one(wide: list[Any]) -> tuple[torch.Tensor, ...]:
        try:
            with memory.within():
                return run(wide)
        except (torch.OutOfMemoryError, MemoryError):
            pass
        # Outside the handler: the traceback would hold on to the tensors of the attempt.
        return run(wide)

    return one


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
    picks = [0, split.size // 2, split.size - 1]
    try:
        together = run(split.rows(inputs, torch.tensor(picks, device=device)))
        if any(whole.shape[:1] != (_SAMPLE,) for whole in together):
            return False
        scales = [_rms(whole) for whole in together]
        # Rows of few inputs are large: those had alone are looked at one after another.
        for n, pick in enumerate(picks):
            alone = run(split.rows(inputs, slice(pick, pick + 1)))
            for part, whole, eager, scale in zip(alone, together, produced, scales, strict=True):
                if part.shape[:1] != (1,) or not _same(part[0], whole[n], _SAME, scale):
                    return False
                if not _same(eager[pick], whole[n], _NEAR, scale):
                    return False
            del alone, part
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception:
        # The module does not take such a part of its inputs.
        return False
    return True


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Flat, in float64 where floating."""
    yield from (upcast(one) for one in torch.split(value.reshape(-1), budget_of(value.device).piece(_PIECE, _EACH)))


def _rms(value: torch.Tensor) -> float:
    """Over finite elements, the others taken as zero."""
    if not value.is_floating_point():
        return 0.0
    return math.sqrt(sum(float(computable(one).square().sum()) for one in _pieces(value)) / max(1, value.numel()))


def _same(first: torch.Tensor, second: torch.Tensor, tolerance: float, scale: float) -> bool:
    """Whether two tensors agree, in units of `scale`; integers may differ at a few elements between precisions."""
    if first.shape != second.shape:
        return False
    pairs = zip(_pieces(first), _pieces(second), strict=True)
    if not second.is_floating_point():
        return sum(int((a != b).sum()) for a, b in pairs) <= tolerance * second.numel()
    atol = tolerance * scale
    return all(torch.allclose(a, b, rtol=tolerance, atol=atol, equal_nan=True) for a, b in pairs)


class Rows:
    """A module's outputs in float64 for all rows, had batch by batch whenever they are asked for: nothing of them is
    kept, so nobody can read or change them. Inputs and weights must be what they were."""

    def __init__(
        self, double: Doubled, inputs: Sequence[Any], split: Split, batch: int, memory: MemoryBudget | None = None
    ) -> None:
        """`batch`: rows at a time, fewer where they take more than `memory` allows."""
        self._memory = memory or MemoryBudget()
        self._double = double
        self._inputs = list(inputs)
        self._split = split
        self._batch = max(1, min(batch, split.size))
        self._tried = False
        """Whether a batch of this size has fitted. The next ones take as much; to hold each of them to a limit has the
        allocator give its reserve back and ask for it anew, which takes longer than the batch."""

    def outputs(self) -> tuple[Rowwise, ...]:
        """All outputs. Asks for one row, which says what they look like."""
        first = bounded(self._double(), self._memory)(self._split.rows(self._inputs, slice(0, 1)))
        return tuple(
            Rowwise(self, index, torch.Size((self._split.size, *one.shape[1:])), one.dtype, one.device)
            for index, one in enumerate(first)
        )

    def batches(self, index: int) -> Iterator[torch.Tensor]:
        """One output, some rows at a time, in order. Where memory does not suffice, batches become smaller."""
        run, start = self._double(), 0
        while start < self._split.size:
            held, rows = not self._tried, self._batch
            try:
                with self._memory.within() if held else contextlib.nullcontext():
                    found = run(self._split.rows(self._inputs, slice(start, start + rows)))[index]
            except torch.OutOfMemoryError:
                if rows == 1 and not held:
                    raise
                # A single row that does not fit the bound may fit the device.
                self._tried, self._batch = rows == 1, -(-rows // 2)
                continue
            self._tried = True
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
