"""The rule for outputs of integers and booleans: exact, but for ties and for what rounding explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from warpsmith.tools.verification.batches import Rowwise
from warpsmith.tools.verification.compare import Comparison, Truth, aligned_chunks, numbered_chunks
from warpsmith.tools.verification.sealed import Sealed, opened, piece_of

_FINE_STEPS = 0.25
"""Share of elements at which eager misses: above it integers are counted in steps finer than the rounding."""
_LITTLE = 0.01
"""Share of the spread of the values that the deviations of such integers stay below."""
_TELLING = 0.5
"""Share of an input's values that may equal the one at the right position, unless that is the extremum."""
_FOLLOWING = 0.9
"""Share of positions that have to move with the values they are positions of: rounding may decide some anew."""
_ROWS = 4
"""Rows for which the slices at tied positions are exchanged; each asks the module once more."""
_NEAR = 2.0
"""Mean deviation up to which integers count as rounded; positions of nearly equal values lie anywhere."""
_EXACT_ROOM = 4
"""Times the share of integers at which eager differs from float64 that a candidate may have: which elements lie
so near to a step that rounding decides is a matter of the order of operations."""


Rerun = Callable[[list[Any]], torch.Tensor | None]
"""The same output of the module on other inputs; None where it refuses them."""


@dataclass(frozen=True, slots=True)
class ExactYardstick:
    """What eager gives for an output of integers or booleans, and how far that is from float64."""

    eager: torch.Tensor | Sealed
    share: float
    """Of the elements at which eager differs from float64."""
    largest: float
    """Eager's largest deviation from float64."""
    mean: float = 0.0
    """Eager's mean deviation where it deviates."""
    spread: float = 0.0
    """Standard deviation of float64's integers."""

    @property
    def fine(self) -> bool:
        """Whether the step between integers is finer than the rounding: eager misses often, by little in proportion."""
        often = self.share > _FINE_STEPS and self.largest > 1
        return often and _EXACT_ROOM * self.largest <= _LITTLE * self.spread

    @property
    def positions(self) -> bool:
        """Whether eager's deviations look like those of positions: far, where they occur."""
        return not self.fine and self.mean > _NEAR


def exact_yardstick(reference: Truth, eager: torch.Tensor) -> ExactYardstick:
    """Measures eager's integers or booleans against those that float64 leads to."""
    count = max(1, eager.numel())
    differing = largest = apart = total = square = 0.0
    for truth, value in aligned_chunks(reference, eager):
        size = _wide(truth).abs()
        total, square = total + float(size.sum()), square + float(size.square().sum())
        differs = truth != value
        far = _apart(truth, value)[differs]
        differing += float(differs.sum())
        largest, apart = max(largest, _largest(far)), apart + float(far.sum())
    spread = math.sqrt(max(0.0, square / count - (total / count) ** 2))
    return ExactYardstick(eager, differing / count, largest, apart / max(1.0, differing), spread)


def wider_exact(first: ExactYardstick, other: ExactYardstick) -> ExactYardstick:
    """The first, with the larger deviation of both; shares of few elements can be zero by luck."""
    return replace(
        first,
        share=max(first.share, other.share),
        largest=max(first.largest, other.largest),
        mean=max(first.mean, other.mean),
        spread=max(first.spread, other.spread),
    )


def compare_exact(
    value: torch.Tensor,
    reference: Truth,
    measure: ExactYardstick,
    inputs: Sequence[Any],
    again: Rerun | None = None,
) -> Comparison:
    """Each integer or boolean must equal what float64 or what eager gives. Two things excuse others: both are
    positions of equal values along a dimension of an input (either of the tied positions is right), or they are
    about as few and as near as the elements at which eager itself rounds to another integer than float64. `again` is
    asked whether the module itself cannot tell the tied positions apart, and where they are not those of an extremum,
    whether they move with what they are positions of."""
    if value.dtype is torch.bool and value.numel() and int(value.view(torch.uint8).max()) > 1:
        # Torch reads such a byte as true here and as its bits there.
        return Comparison(None, None, "some booleans are stored as bytes that are neither 0 nor 1")
    wrong, far, apart = 0, 0, 0.0
    for start, truth, chunk in numbered_chunks(reference, value):
        eager = piece_of(measure.eager, start, start + chunk.numel()).to(value.device)
        differs = (chunk != truth) & (chunk != eager)
        nearer = torch.minimum(_apart(chunk, truth), _apart(chunk, eager))[differs]
        wrong += nearer.numel()
        far += int((nearer > measure.largest).sum())
        apart = max(apart, _largest(nearer))
    if wrong == 0:
        return Comparison(None, 0.0)
    if _excused(measure, value.numel(), wrong, far, apart):
        return Comparison(None, apart)
    if value.dtype is not torch.bool and _tied(value, _whole(reference), opened(measure.eager), inputs, again):
        return Comparison(None, 0.0)
    what = "booleans" if value.dtype is torch.bool else "integers"
    return Comparison(None, None, f"{wrong} of {value.numel()} {what} equal neither float64's nor eager's")


def _whole(reference: Truth) -> torch.Tensor:
    return reference.opened() if isinstance(reference, Rowwise) else opened(reference)


def _excused(measure: ExactYardstick, count: int, wrong: int, far: int, apart: float) -> bool:
    """Whether `wrong` of `count` elements, `apart` at most and `far` of them farther than eager ever is, are what
    rounding explains.

    Where the step between integers is finer than the rounding the distance decides, as it does for floats. Elsewhere
    the elements are few, and as near as eager's: more than half only where eager differs at about as many (three
    standard deviations), else a result that is off by one everywhere would pass. That another order of operations
    doubles a deviation is about as rare as two of eager's at once. Positions have no distance: there they are as few as
    eager's, and never most.
    """
    if measure.fine:
        return apart <= _EXACT_ROOM * measure.largest
    most = measure.share * count + 3 * math.sqrt(count * measure.share * (1 - measure.share))
    if measure.positions:
        return wrong <= math.ceil(min(most, count / 2))
    most = math.ceil(max(most, min(_EXACT_ROOM * measure.share * count, count / 2)))
    doubled = math.floor(measure.share**2 * count)
    return wrong <= most and far <= doubled and apart <= _EXACT_ROOM * max(1.0, measure.largest)


def _apart(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (_wide(first) - _wide(second)).abs()


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128) if value.is_complex() else value.double()


def _largest(errors: torch.Tensor) -> float:
    return float(errors.max()) if errors.numel() else 0.0


def _tied(
    value: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor, inputs: Sequence[Any], again: Rerun | None
) -> bool:
    """Whether some input has equal values at both positions, along one of its dimensions, wherever eager's
    position is not the one given."""
    truth = reference.to(value.device).long()
    index = torch.where(value == eager, truth, value.long())
    for tensor in inputs:
        if not isinstance(tensor, torch.Tensor):
            continue
        for dim in range(tensor.dim()):
            if not (_fits(tensor, dim, index) and _fits(tensor, dim, truth) and _equal_at(tensor, dim, index, truth)):
                continue
            if again is None:
                if _extreme_at(tensor, dim, truth):
                    return True
            elif (_extreme_at(tensor, dim, truth) or _follows(tensor, dim, truth, inputs, again)) and (
                _exchangeable(tensor, dim, index, truth, inputs, again)
            ):
                return True
    return False


def _exchangeable(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, truth: torch.Tensor, inputs: Sequence[Any], again: Rerun
) -> bool:
    """Whether the module cannot tell tied positions apart: with what stands at the two exchanged, its answer stays. One
    input that is equal there, a mask perhaps, proves nothing of the others. All rows are exchanged at once in the
    inputs of this shape, then whole slices, for one row after another, in all inputs that have the dimension."""
    shape = [1 if d == dim else size for d, size in enumerate(tensor.shape)]
    given, right = index.reshape(shape), truth.reshape(shape)
    before = again(list(inputs))
    if before is None:
        return False

    def stays(changed: list[Any], rows: torch.Tensor) -> bool:
        after = again(changed)
        return after is not None and torch.equal(after.reshape(shape)[rows], before.reshape(shape)[rows])

    differs = given != right
    swapped = [
        _swapped(value, dim, given, right) if isinstance(value, torch.Tensor) and value.shape == tensor.shape else value
        for value in inputs
    ]
    if not stays(swapped, differs):
        return False
    rows = differs.nonzero()
    for place in rows[torch.randperm(len(rows), device=rows.device)[:_ROWS]]:
        row = tuple(place.tolist())
        first, second = int(given[row]), int(right[row])
        changed = [_with_slices(value, tensor, dim, first, second) for value in inputs]
        one = torch.zeros_like(differs)
        one[row] = True
        if not stays(changed, one):
            return False
    return True


def _swapped(value: torch.Tensor, dim: int, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """A copy in which what stands at two positions along a dimension has changed places, row by row."""
    there, here = value.gather(dim, first), value.gather(dim, second)
    return value.scatter(dim, first, here).scatter(dim, second, there)


def _with_slices(value: Any, tensor: torch.Tensor, dim: int, first: int, second: int) -> Any:
    """A copy in which two slices have changed places along the dimension that meets `dim` of `tensor` where both are
    broadcast against each other; other inputs as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    along = dim - tensor.dim() + value.dim()
    if along < 0 or value.shape[along] != tensor.shape[dim]:
        return value
    order = torch.arange(value.shape[along], device=value.device)
    order[first], order[second] = second, first
    return value.index_select(along, order)


def _fits(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    kept = [1 if d == dim else size for d, size in enumerate(tensor.shape)]
    dropped = [size for d, size in enumerate(tensor.shape) if d != dim]
    if list(index.shape) not in (kept, dropped):
        return False
    return bool(((index >= 0) & (index < tensor.shape[dim])).all())


def _equal_at(tensor: torch.Tensor, dim: int, index: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether the values are equal, and tell the right positions from others: in a mask that is zero throughout all
    positions are alike, whatever they are positions of."""
    expected = _at(tensor, dim, truth)
    if not torch.equal(_at(tensor, dim, index), expected):
        return False
    if float((tensor == expected).double().mean()) < _TELLING:
        return True
    return _extreme_at(tensor, dim, truth) and bool((tensor != expected).any())


def _at(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """The values at positions along a dimension, which is kept."""
    return tensor.gather(dim, index.reshape([1 if d == dim else size for d, size in enumerate(tensor.shape)]))


def _extreme_at(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Whether the largest, or the smallest, values along a dimension lie at these positions."""
    if tensor.is_complex():
        return False
    found = _at(tensor, dim, index)
    return torch.equal(found, tensor.amax(dim, keepdim=True)) or torch.equal(found, tensor.amin(dim, keepdim=True))


def _follows(tensor: torch.Tensor, dim: int, truth: torch.Tensor, inputs: Sequence[Any], again: Rerun) -> bool:
    """Whether the module finds the same values where an input, and what has its shape, runs the other way: counts and
    codes that happen to lie in range do not."""
    turned = [
        value.flip(dim) if isinstance(value, torch.Tensor) and value.shape == tensor.shape else value
        for value in inputs
    ]
    other = again(turned)
    if other is None or other.shape != truth.shape or not _fits(tensor, dim, other):
        return False
    moved = tensor.shape[dim] - 1 - other.long()
    return float((_at(tensor, dim, moved) == _at(tensor, dim, truth)).double().mean()) >= _FOLLOWING
