"""Float64 references batch by batch, for modules that treat the rows of their inputs independently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.tools.verification.domains import computable

Run = Callable[[list[Any]], tuple[torch.Tensor, ...]]
"""Outputs in float64 for flat inputs in float64."""
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


def in_batches(
    run: Run, inputs: Sequence[Any], split: Split, produced: Sequence[torch.Tensor], budget_bytes: int
) -> tuple[torch.Tensor, ...]:
    """References for all rows, in host memory. A batch takes about `budget_bytes` of the device at most, as far as
    inputs and outputs tell; where that is too much still, batches become smaller."""
    held = [value for n, value in enumerate(inputs) if n in split.positions] + list(produced)
    row_bytes = sum(8 * value[0].numel() for value in held) * _WORKING_COPIES
    rows = min(split.size, max(1, budget_bytes // max(1, row_bytes)))
    references: list[torch.Tensor] = []
    start = 0
    while start < split.size:
        try:
            outputs = run(split.rows(inputs, slice(start, start + rows)))
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            rows = -(-rows // 2)
            continue
        if not references:
            references = [torch.empty((split.size, *one.shape[1:]), dtype=one.dtype) for one in outputs]
        for reference, one in zip(references, outputs, strict=True):
            reference[start : start + rows].copy_(one)
        start += rows
    return tuple(references)
