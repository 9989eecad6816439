"""The numerical rule: error of a result against float64, in units of the eager operator's own error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from warpsmith.tools.verification.batches import Rowwise
from warpsmith.tools.verification.fused import Piece, Rule, fused_on
from warpsmith.tools.verification.memory import budget_of
from warpsmith.tools.verification.sealed import Sealed, piece_of

Truth = torch.Tensor | Sealed | Rowwise
"""What results are held against: in memory, sealed there, or computed whenever it is asked for."""

RULE_VERSION = 6
"""Changes with whatever decides a verdict on numbers: audits of other versions count no more."""
_CHUNK_GPU = 1 << 23
_CHUNK_CPU = 1 << 21
"""Elements compared at a time: bounds the float64 temporaries."""
_EACH = 64
"""Bytes of temporaries an element."""
_EAGER_ROOM = 16
"""Times eager's largest error that the absolute bound leaves, for results that cancel: there eager itself may
be off by more than a thousandth."""
_ALMOST_EXACT = 64
"""Units in the last place of the largest element that a result may be off where eager is exact: methods that divide
on the way (Winograd's) are not exact in float32. Of 16-bit results equality is asked."""
_ROUNDING_RMS = 1 / math.sqrt(12)
"""Rms error of a value rounded once, in units in the last place; its largest is a half."""
_SMALLEST_STEP = 2.0**-8
"""Elements below this share of the rms are counted in its steps: what cancels to nearly nothing has no digits."""
_MISSED = 0.1
"""Share of its own value by which an element is off that counts as missed."""
_EAGER_MISSED = _MISSED / 8
_MISSED_ROOM = 8
"""Where an element cancels to nearly nothing eager is off by as large a share, if by fewer digits: a right kernel may
miss so many times the elements at which eager is off by an eighth of that."""
_MISSED_SHARE = 0.005
"""Of all elements that may be missed besides, where the error is more than one rounding of the rms."""
_FAINT_SHARE = 1 / 3
"""The same where the error is less than that: the tails of `1 + erf(x)` and of `log(1 + exp(x))` are lost so, at
most 0.3 of what a normal distribution gives."""
_MISSED_FEW = 4
NARROW_INSIDE = 2.0
TF32_INSIDE = 4.0
"""Bounds on the ratio where eager itself works below the precision of its output: no room for less."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What passes for one dtype; docs/numerics.md has the rule, docs/results/numerics.md what it was chosen from."""

    rms_ratio: float
    max_ratio: float
    atol: float
    """In units of the reference's rms."""
    rtol: float
    steps: tuple[float, float] | None = None
    """Where rounding of the output is the largest error: bounds on the rms and on the largest error counted in each
    element's own units in the last place, again as ratios to eager."""

    @property
    def everywhere(self) -> bool:
        """Whether ratios are bounded on every kind of input: honest orders of summation cannot show in a result that
        is rounded so coarsely."""
        return self.steps is not None


_COARSE = Limits(rms_ratio=2, max_ratio=4, atol=1e-2, rtol=1e-2, steps=(3, 64))
LIMITS = {
    torch.float32: Limits(rms_ratio=64, max_ratio=300, atol=1e-3, rtol=1e-3),
    torch.float64: Limits(rms_ratio=1024, max_ratio=4096, atol=1e-9, rtol=1e-9),
    torch.float16: _COARSE,
    torch.bfloat16: replace(_COARSE, atol=5e-2, rtol=5e-2),
    torch.float8_e4m3fn: replace(_COARSE, atol=0.25, rtol=0.25),
    torch.float8_e5m2: replace(_COARSE, atol=0.5, rtol=0.5),
}


@dataclass(frozen=True, slots=True)
class Missed:
    """Numbers of elements that are off by a share of their own value."""

    gross: float = 0.0
    """By more than one rounding of the rms as well."""
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Facts of one reference output and of eager's error on it. None of the figures depends on a
    candidate."""

    rms: float
    """Of the reference, over its finite elements."""
    eager_rms: float
    """Eager's rms error, but at least that of rounding."""
    eager_max: float
    """Eager's largest error, but at least that of rounding."""
    nonfinite: int
    """Elements at which the reference, rounded to the output's dtype, is NaN or infinite."""
    eager_agrees: bool
    """Whether eager has its infinities and NaN in the same places."""
    step_rms: float = _ROUNDING_RMS
    step_max: float = 0.5
    """Eager's errors in each element's own units in the last place; taken where the limits ask for them."""
    inside: torch.dtype | None = None
    """The precision that eager works in where that is below its output's; float32 stands for TF32."""
    exact: bool = False
    """Whether eager's result is float64's to the last bit."""
    ulp_max: float = 0.0
    """The largest unit in the last place of the reference."""
    strict_rms: float | None = None
    """`eager_rms` with TF32 switched off, where eager uses it."""

    missed: Missed = Missed()
    """Elements at which eager is off by an eighth of what counts as missed."""

    @property
    def finite(self) -> bool:
        """Whether the reference is finite everywhere."""
        return self.nonfinite == 0


def wider(first: Yardstick, other: Yardstick) -> Yardstick:
    """The first, with the larger of both errors of eager: that of few elements can be small by luck."""
    return replace(
        first,
        eager_rms=max(first.eager_rms, other.eager_rms),
        eager_max=max(first.eager_max, other.eager_max),
        step_rms=max(first.step_rms, other.step_rms),
        step_max=max(first.step_max, other.step_max),
        missed=Missed(max(first.missed.gross, other.missed.gross), max(first.missed.every, other.missed.every)),
    )


@dataclass(frozen=True, slots=True)
class Ratios:
    """Errors as multiples of eager's."""

    rms: float
    largest: float
    step_rms: float
    """In each element's own units in the last place; 0 where the limits do not ask for it."""
    step_largest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference. `problem` says what is wrong, or is None."""

    ratio: float | None
    max_abs_error: float | None
    problem: str | None = None
    strict_ratio: float | None = None
    """`ratio` to eager without TF32, where eager uses it."""
    ratios: Ratios | None = None


@dataclass(frozen=True, slots=True)
class _Errors:
    """Sums over finite elements; `misplaced` counts infinities and NaN that do not match the
    reference's."""

    square: float = 0.0
    largest: float = 0.0
    beyond: float = 0.0
    misplaced: float = 0.0
    step_square: float = 0.0
    step_largest: float = 0.0
    gross: float = 0.0
    every: float = 0.0
    """As in `Missed`."""


def yardstick(reference: Truth, eager: torch.Tensor) -> Yardstick:
    """Measures eager against float64. Both hold the same shape; the reference may lie on another device."""
    count = max(1, reference.numel())
    square, ulp_square, ulp_max, nonfinite = _measured(reference, eager)
    rms = math.sqrt(square / count)
    coarse = LIMITS[eager.dtype].everywhere
    errors = _errors(
        reference, eager, smallest=rms * _SMALLEST_STEP if coarse else None,
        miss=_EAGER_MISSED if _tells_misses(eager.dtype) else None, rms=rms,
    )  # fmt: skip
    ulp_rms = math.sqrt(ulp_square / count) * (_ROUNDING_RMS if coarse else 1)
    return Yardstick(
        rms=rms,
        eager_rms=max(math.sqrt(errors.square / count), ulp_rms) or 1.0,
        eager_max=max(errors.largest, ulp_max * (0.5 if coarse else 1)) or 1.0,
        nonfinite=int(nonfinite),
        exact=errors.largest == 0 and errors.misplaced == 0,
        ulp_max=ulp_max,
        eager_agrees=errors.misplaced == 0,
        step_rms=max(math.sqrt(errors.step_square / count), _ROUNDING_RMS),
        step_max=max(errors.step_largest, 0.5),
        missed=Missed(errors.gross, errors.every),
    )


def _measured(reference: Truth, value: torch.Tensor) -> list[float]:
    """Of the reference rounded to the dtype of `value`: sum of squares, sum of squared units in the last place and the
    largest of those over finite elements; number of the others."""
    kernels = fused_on(value.device, reference.dtype, value.dtype)
    if kernels is not None:
        return kernels.measure(_fused_pieces(reference, value), value.dtype)
    found = [0.0] * 4
    for truth, chunk in aligned_chunks(reference, value):
        rounded = truth.to(chunk.dtype).double()
        finite = rounded.isfinite()
        usable = torch.where(finite, rounded, 0).abs_()
        step = _ulp(usable, chunk.dtype)
        sums = torch.stack([usable.square().sum(), step.square().sum(), step.max(), (~finite).sum().double()])
        found = _added(found, sums.tolist(), largest=(2,))
    return found


def _added(found: list[float], more: list[float], largest: tuple[int, ...]) -> list[float]:
    """Sums, or at the positions `largest` maxima, of two pieces together."""
    return [max(a, b) if n in largest else a + b for n, (a, b) in enumerate(zip(found, more, strict=True))]


def compare(
    value: torch.Tensor, reference: Truth, measure: Yardstick, *, by_ratio: bool, whole: bool = False
) -> Comparison:
    """Applies the rule to one floating output. `by_ratio` adds the bounds on the ratio to eager's error where rounding
    in another order could break them on other inputs; `whole` says that the inputs are small whole numbers: where
    eager is exact on them, so is every right kernel."""
    limits = LIMITS[value.dtype]
    atol = limits.atol * measure.rms + _EAGER_ROOM * measure.eager_max
    smallest = measure.rms * _SMALLEST_STEP if limits.everywhere else None
    miss = _MISSED if by_ratio and _tells_misses(value.dtype) else None
    errors = _errors(
        reference, value, bounds=(atol, limits.rtol), smallest=smallest, miss=miss, rms=measure.rms
    )  # fmt: skip
    rms = math.sqrt(errors.square / max(1, value.numel()))
    strict = rms / measure.strict_rms if measure.strict_rms else None
    step_rms = math.sqrt(errors.step_square / max(1, value.numel()))
    ratios = Ratios(
        rms / measure.eager_rms, errors.largest / measure.eager_max,
        step_rms / measure.step_rms, errors.step_largest / measure.step_max,
    )  # fmt: skip
    problem = None
    if errors.misplaced:
        problem = f"{errors.misplaced:.0f} elements are NaN or infinite unlike the reference"
    elif errors.beyond:
        problem = f"{errors.beyond:.0f} of {value.numel()} elements are off by more than {limits.rtol:g}"
    elif whole and measure.exact and errors.largest > (0 if limits.everywhere else _ALMOST_EXACT * measure.ulp_max):
        problem = f"off by up to {errors.largest:.3g} on whole numbers, where eager PyTorch is exact"
    elif by_ratio or limits.everywhere or measure.inside is not None:
        problem = _beyond_ratio(ratios, limits, measure.inside)
    if problem is None and miss is not None:
        problem = _too_many_missed(errors, measure.missed, value.numel())
    return Comparison(ratios.rms, errors.largest, problem, strict, ratios)


def _beyond_ratio(ratios: Ratios, limits: Limits, inside: torch.dtype | None) -> str | None:
    """Which ratio to eager's error is too large, if any."""
    rms, largest = limits.rms_ratio, limits.max_ratio
    if inside is not None:
        bound = TF32_INSIDE if inside is torch.float32 else NARROW_INSIDE
        rms, largest = min(bound, rms), min(2 * bound, largest)
    bounds = [("rms error is", ratios.rms, rms), ("largest error is", ratios.largest, largest)]
    if limits.steps is not None:
        bounds.append(("rms error in units in the last place is", ratios.step_rms, limits.steps[0]))
        bounds.append(("largest error in units in the last place is", ratios.step_largest, limits.steps[1]))
    for what, ratio, limit in bounds:
        if ratio > limit:
            return f"{what} {ratio:.3g} times that of eager PyTorch (limit {limit:g})"
    return None


def _tells_misses(dtype: torch.dtype) -> bool:
    """Whether a tenth of a value is many of the dtype's steps."""
    return torch.finfo(dtype).eps < _EAGER_MISSED


def _too_many_missed(errors: _Errors, eager: Missed, count: int) -> str | None:
    """Whether elements are off by a tenth of their own value where those of right kernels are not: beside elements a
    million times as large the other bounds do not see them."""
    for found, of_eager, share in (
        (errors.gross, eager.gross, _MISSED_SHARE),
        (errors.every, eager.every, _FAINT_SHARE),
    ):
        if found > _MISSED_ROOM * of_eager + share * count + _MISSED_FEW:
            return (
                f"{found:.0f} of {count} elements are off by more than {_MISSED:g} of their own value "
                f"(eager PyTorch: {of_eager:.0f} by {_EAGER_MISSED:g})"
            )
    return None


def aligned_chunks(reference: Truth, value: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Aligned flat pieces of both, on the device of `value`."""
    for _, truth, chunk in numbered_chunks(reference, value):
        yield truth, chunk


def numbered_chunks(reference: Truth, value: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """The same, each pair with its first element's number."""
    step = budget_of(value.device).piece(_CHUNK_GPU if value.is_cuda else _CHUNK_CPU, _EACH)
    if isinstance(reference, Rowwise):
        start = 0
        for truth in reference.pieces(step):
            yield start, truth.to(value.device), piece_of(value, start, start + truth.numel())
            start += truth.numel()
        return
    for start in range(0, value.numel(), step):
        yield start, piece_of(reference, start, start + step).to(value.device), piece_of(value, start, start + step)


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Rms of the differences of two results, over elements finite in both."""
    square = torch.zeros((), dtype=torch.float64, device=other.device)
    for first, second in aligned_chunks(one, other):
        apart = first.double().sub_(second)
        square += torch.where(apart.isfinite(), apart, 0).square_().sum()
    return math.sqrt(float(square) / max(1, one.numel()))


def _errors(
    reference: Truth,
    value: torch.Tensor,
    *,
    bounds: tuple[float, float] | None = None,
    smallest: float | None = None,
    miss: float | None = None,
    rms: float = 0.0,
) -> _Errors:
    """Error sums of `value`. `bounds` (absolute, relative) also counts the elements beyond them, `smallest` also takes
    errors in units in the last place, of elements no smaller than that; `miss` also counts elements that are off by
    more than that share of their own value."""
    faint = rms * torch.finfo(value.dtype).eps
    kernels = fused_on(value.device, reference.dtype, value.dtype)
    if kernels is not None:
        rule = Rule(bounds, smallest, miss, _least(value.dtype), faint)
        return _Errors(*kernels.errors(_fused_pieces(reference, value), value.dtype, rule))
    found = [0.0] * 8
    for truth, chunk in aligned_chunks(reference, value):
        rounded = truth.to(chunk.dtype).double()
        given = chunk.double()
        finite = rounded.isfinite()
        error = (given - truth).abs_()
        wild = ~error.isfinite()
        same = (given == rounded) | (given.isnan() & rounded.isnan())
        bad = (wild & ~same) | (~finite & ~same)
        error.masked_fill_(wild | ~finite, 0)
        zero = error.new_zeros(())
        beyond = step_square = step_largest = gross = every = zero
        if bounds is not None or miss is not None:
            size = torch.where(finite, truth, 0).abs_()
        if miss is not None:
            missed = (error > size * miss).logical_and_(size > _least(chunk.dtype))
            every = missed.sum().double()
            gross = missed.logical_and_(error > faint).sum().double()
        if bounds is not None:
            beyond = (error > size.mul_(bounds[1]).add_(bounds[0])).sum().double()
        if smallest is not None:
            steps = error / _ulp(torch.where(finite, rounded, 0).abs_().clamp_(min=smallest), chunk.dtype)
            step_square, step_largest = steps.square().sum(), steps.max()
        sums = torch.stack(
            [error.square().sum(), error.max(), beyond, bad.sum().double(), step_square, step_largest, gross, every]
        )
        found = _added(found, sums.tolist(), largest=(1, 5))
    return _Errors(*found)


def _fused_pieces(reference: Truth, value: torch.Tensor) -> Iterator[Piece]:
    """Both at once where they lie in the same order on one device, else their aligned pieces."""
    if value.is_contiguous() and reference.device == value.device:
        if isinstance(reference, Sealed) and reference.key is not None:
            yield Piece(reference.memory, value.resolve_neg().view(-1), reference.key)
            return
        if isinstance(reference, torch.Tensor) and reference.is_contiguous():
            yield Piece(reference.resolve_neg().view(-1), value.resolve_neg().view(-1))
            return
    for truth, chunk in aligned_chunks(reference, value):
        yield Piece(truth.resolve_neg().contiguous(), chunk.resolve_neg().contiguous())


def _least(dtype: torch.dtype) -> float:
    """Elements below this are not held against their own value: intermediate results may have left the range of
    `dtype`'s full precision, or be the far tails of an exponential."""
    about = torch.finfo(dtype)
    return max(about.smallest_normal / about.eps**2, about.eps**4) if about.max > 1e9 else about.smallest_normal


def _ulp(size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The unit in the last place of `dtype` at each of these float64 values, none negative."""
    about = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp(min=about.smallest_normal)).exponent
    return torch.exp2((exponent - 1).double()).mul_(about.eps)
