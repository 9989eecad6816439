"""The numerical rule: error of a result against float64, in units of the eager operator's own error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from warpsmith.tools.sealed import Sealed, opened, piece_of

_CHUNK_GPU = 1 << 25
_CHUNK_CPU = 1 << 21
"""Elements compared at a time: bounds the float64 temporaries (eight bytes each, about five of them)."""


_EAGER_ROOM = 16
"""Times eager's largest error that the absolute bound leaves, for results that cancel: there eager itself may
be off by more than a thousandth."""
_FINE_STEPS = 0.25
"""Share of elements at which eager misses: above it integers are counted in steps finer than the rounding."""
_EXACT_ROOM = 4
"""Times the share of integers at which eager differs from float64 that a candidate may have: which elements lie
so near to a step that rounding decides is a matter of the order of operations."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What passes for one dtype. See docs on numerical acceptance for the measurements behind the
    figures."""

    rms_ratio: float
    max_ratio: float
    atol: float
    """In units of the reference's rms."""
    rtol: float


LIMITS = {
    torch.float32: Limits(rms_ratio=64, max_ratio=128, atol=1e-3, rtol=1e-3),
    torch.float64: Limits(rms_ratio=64, max_ratio=128, atol=1e-9, rtol=1e-9),
    torch.float16: Limits(rms_ratio=4, max_ratio=8, atol=1e-2, rtol=1e-2),
    torch.bfloat16: Limits(rms_ratio=4, max_ratio=8, atol=5e-2, rtol=5e-2),
}


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Facts of one reference output and of eager's error on it. None of the figures depends on a
    candidate."""

    rms: float
    """Of the reference, over its finite elements."""
    eager_rms: float
    """Eager's rms error, but at least one unit in the last place (rms)."""
    eager_max: float
    """Eager's largest error, but at least the largest unit in the last place."""
    finite: bool
    """Whether the reference, rounded to the output's dtype, is finite everywhere."""
    eager_agrees: bool
    """Whether eager has its infinities and NaN in the same places."""


def wider(first: Yardstick, other: Yardstick) -> Yardstick:
    """The first, with the larger of both errors of eager: that of few elements can be small by luck."""
    return replace(
        first,
        eager_rms=max(first.eager_rms, other.eager_rms),
        eager_max=max(first.eager_max, other.eager_max),
    )


@dataclass(frozen=True, slots=True)
class ExactYardstick:
    """What eager gives for an output of integers or booleans, and how far that is from float64."""

    eager: torch.Tensor | Sealed
    share: float
    """Of the elements at which eager differs from float64."""
    largest: float
    """Eager's largest deviation from float64."""


def exact_yardstick(reference: torch.Tensor, eager: torch.Tensor) -> ExactYardstick:
    """Measures eager's integers or booleans against those that float64 leads to."""
    differing = largest = 0.0
    for truth, value in _chunks(reference, eager):
        differs = truth != value
        differing += float(differs.sum())
        largest = max(largest, _largest(_apart(truth, value)[differs]))
    return ExactYardstick(eager, differing / max(1, eager.numel()), largest)


def wider_exact(first: ExactYardstick, other: ExactYardstick) -> ExactYardstick:
    """The first, with the larger deviation of both; shares of few elements can be zero by luck."""
    return replace(first, share=max(first.share, other.share), largest=max(first.largest, other.largest))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference. `problem` says what is wrong, or is None."""

    ratio: float | None
    max_abs_error: float | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Errors:
    """Sums over finite elements; `misplaced` counts infinities and NaN that do not match the
    reference's."""

    square: float
    largest: float
    beyond: float
    misplaced: float


def yardstick(reference: torch.Tensor, eager: torch.Tensor) -> Yardstick:
    """Measures eager against float64. Both hold the same shape; the reference may lie on another device."""
    count = max(1, reference.numel())
    square = ulp_square = ulp_max = infinite = 0.0
    for truth, value in _chunks(reference, eager):
        rounded = truth.to(value.dtype)
        finite = rounded.isfinite()
        usable = torch.where(finite, rounded, 0).abs()
        step = _ulp(usable).double()
        sums = torch.stack(
            [usable.double().square().sum(), step.square().sum(), step.max(), (~finite).sum().double()]
        ).tolist()
        square, ulp_square = square + sums[0], ulp_square + sums[1]
        ulp_max, infinite = max(ulp_max, sums[2]), infinite + sums[3]
    errors = _errors(reference, eager, None)
    return Yardstick(
        rms=math.sqrt(square / count),
        eager_rms=max(math.sqrt(errors.square / count), math.sqrt(ulp_square / count)) or 1.0,
        eager_max=max(errors.largest, ulp_max) or 1.0,
        finite=infinite == 0,
        eager_agrees=errors.misplaced == 0,
    )


def compare(value: torch.Tensor, reference: torch.Tensor | Sealed, measure: Yardstick, *, by_ratio: bool) -> Comparison:
    """Applies the rule to one floating output. `by_ratio` adds the bounds on the ratio to eager's error."""
    limits = LIMITS[value.dtype]
    atol = limits.atol * measure.rms + _EAGER_ROOM * measure.eager_max
    errors = _errors(reference, value, (atol, limits.rtol))
    rms = math.sqrt(errors.square / max(1, value.numel()))
    ratio, peak = rms / measure.eager_rms, errors.largest / measure.eager_max
    problem = None
    if errors.misplaced:
        problem = f"{errors.misplaced:.0f} elements are NaN or infinite unlike the reference"
    elif errors.beyond:
        problem = f"{errors.beyond:.0f} of {value.numel()} elements are off by more than {limits.rtol:g}"
    elif by_ratio and ratio > limits.rms_ratio:
        problem = f"rms error is {ratio:.3g} times that of eager PyTorch (limit {limits.rms_ratio:g})"
    elif by_ratio and peak > limits.max_ratio:
        problem = f"largest error is {peak:.3g} times that of eager PyTorch (limit {limits.max_ratio:g})"
    return Comparison(ratio, errors.largest, problem)


def compare_exact(
    value: torch.Tensor, reference: torch.Tensor | Sealed, measure: ExactYardstick, inputs: Sequence[Any]
) -> Comparison:
    """Each integer or boolean must equal what float64 or what eager gives. Two things excuse others: both are
    positions of equal values along a dimension of an input (either of the tied positions is right), or they are
    about as few and as near as the elements at which eager itself rounds to another integer than float64."""
    wrong, apart = 0, 0.0
    chunks = zip(_chunks(reference, value), _chunks(measure.eager, value), strict=True)
    for (truth, chunk), (eager, _) in chunks:
        differs = (chunk != truth) & (chunk != eager)
        wrong += int(differs.sum())
        nearer = torch.minimum(_apart(chunk, truth), _apart(chunk, eager))
        apart = max(apart, _largest(nearer[differs]))
    if wrong == 0:
        return Comparison(None, 0.0)
    if _excused(measure, value.numel(), wrong, apart):
        return Comparison(None, apart)
    if value.dtype is not torch.bool and _tied(value, opened(reference), opened(measure.eager), inputs):
        return Comparison(None, 0.0)
    what = "booleans" if value.dtype is torch.bool else "integers"
    return Comparison(None, None, f"{wrong} of {value.numel()} {what} equal neither float64's nor eager's")


def _excused(measure: ExactYardstick, count: int, wrong: int, apart: float) -> bool:
    """Whether `wrong` of `count` elements, `apart` at most, are what rounding explains.

    Where eager itself misses float64's integer at many elements and by more than one, the step between integers is
    finer than the rounding: then the distance decides, as it does for floats. Elsewhere the elements are few, and as
    near as eager's: more than half only where eager differs at about as many (three standard deviations), else a
    result that is off by one everywhere would pass.
    """
    if measure.share > _FINE_STEPS and measure.largest > 1:
        return apart <= _EXACT_ROOM * measure.largest
    as_eager = measure.share * count + 3 * math.sqrt(count * measure.share * (1 - measure.share))
    most = math.ceil(max(as_eager, min(_EXACT_ROOM * measure.share * count, count / 2)))
    return wrong <= most and apart <= measure.largest


def _apart(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (_wide(first) - _wide(second)).abs()


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128) if value.is_complex() else value.double()


def _largest(errors: torch.Tensor) -> float:
    return float(errors.max()) if errors.numel() else 0.0


def memory_of(value: torch.Tensor) -> torch.Tensor:
    """All bytes behind a tensor, gaps included, as a flat uint8 view."""
    return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two flat uint8 tensors are equal."""
    return all(torch.equal(a, b) for a, b in zip(_words(first), _words(second), strict=True))


def checksum(raw: torch.Tensor) -> tuple[int, int, int]:
    """Sums over a flat uint8 tensor by rows and columns: any changed element and nearly any exchange of
    elements shows. Reads twice, writes nothing large."""
    total = rows = columns = 0
    for words in _words(raw):
        width = 4096 if words.numel() % 4096 == 0 else 1
        table = words.view(-1, width)
        by_column = table.sum(0, dtype=torch.int64)
        by_row = table.sum(1, dtype=torch.int64)
        weights = torch.arange(1, by_row.numel() + 1, device=raw.device) | 1
        ramp = torch.arange(1, width + 1, device=raw.device) | 1
        total += int(by_column.sum())
        rows += int((by_row * weights).sum())
        columns += int((by_column * ramp).sum())
    return total, rows, columns


def _words(raw: torch.Tensor) -> Iterator[torch.Tensor]:
    """A flat uint8 tensor as int32, then what is left over as bytes."""
    whole = raw.numel() // 16384 * 16384
    if whole:
        yield raw[:whole].view(torch.int32)
    if raw.numel() > whole:
        yield raw[whole:]


def _chunks(reference: torch.Tensor | Sealed, value: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Aligned flat pieces of both, on the device of `value`."""
    step = _CHUNK_GPU if value.is_cuda else _CHUNK_CPU
    flat = value.reshape(-1)
    for start in range(0, flat.numel(), step):
        yield piece_of(reference, start, start + step).to(value.device), flat[start : start + step]


def _errors(reference: torch.Tensor | Sealed, value: torch.Tensor, bounds: tuple[float, float] | None) -> _Errors:
    """Error sums of `value`; `bounds` (absolute, relative) also counts the elements beyond them."""
    square = largest = beyond = misplaced = 0.0
    for truth, chunk in _chunks(reference, value):
        rounded = truth.to(chunk.dtype)
        finite = rounded.isfinite()
        error = chunk.double().sub_(truth).abs_()
        wild = ~error.isfinite()
        same = (chunk == rounded) | (chunk.isnan() & rounded.isnan())
        bad = (wild & ~same) | (~finite & ~same)
        error.masked_fill_(wild | ~finite, 0)
        sums = [error.square().sum(), error.max(), bad.sum().double()]
        if bounds is not None:
            limit = torch.where(finite, truth, 0).abs_().mul_(bounds[1]).add_(bounds[0])
            sums.append((error > limit).sum().double())
        found = torch.stack(sums).tolist()
        square, largest, misplaced = square + found[0], max(largest, found[1]), misplaced + found[2]
        beyond += found[3] if bounds is not None else 0.0
    return _Errors(square, largest, beyond, misplaced)


def _ulp(value: torch.Tensor) -> torch.Tensor:
    """Distance to the next larger number, for values that are not negative."""
    if value.dtype in (torch.float32, torch.float64):
        return torch.nextafter(value, torch.full_like(value, torch.inf)) - value
    about = torch.finfo(value.dtype)
    exponent = torch.floor(torch.log2(value.float().clamp(min=about.tiny)))
    return torch.exp2(exponent) * about.eps


def _tied(value: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor, inputs: Sequence[Any]) -> bool:
    """Whether some input has equal values at both positions, along one of its dimensions, wherever eager's
    position is not the one given."""
    truth = reference.to(value.device).long()
    index = torch.where(value == eager, truth, value.long())
    for tensor in inputs:
        if not isinstance(tensor, torch.Tensor):
            continue
        for dim in range(tensor.dim()):
            both = _fits(tensor, dim, index) and _fits(tensor, dim, truth)
            if both and _equal_at(tensor, dim, index, truth):
                return True
    return False


def _fits(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    kept = [1 if d == dim else size for d, size in enumerate(tensor.shape)]
    dropped = [size for d, size in enumerate(tensor.shape) if d != dim]
    if list(index.shape) not in (kept, dropped):
        return False
    return bool(((index >= 0) & (index < tensor.shape[dim])).all())


def _equal_at(tensor: torch.Tensor, dim: int, index: torch.Tensor, truth: torch.Tensor) -> bool:
    shape = [1 if d == dim else size for d, size in enumerate(tensor.shape)]
    found, expected = (tensor.gather(dim, at.reshape(shape)) for at in (index, truth))
    return torch.equal(found, expected)
