"""What shipped inputs show of the values they may take, and new values of the same nature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from warpsmith.tools.verification.memory import budget_of

_PIECE = 1 << 24
"""Elements looked at together: a sum in float64 or a count of truth values takes eight bytes for each of them."""
_FEW_ROWS, _FEW_COLUMNS = 64, 4096
Domain = Literal["fixed", "labels", "integers", "probability", "log_probability", "unit", "positive", "real"]

_Map = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class InputDomain:
    """What a shipped input shows of the values it may take."""

    domain: Domain
    dim: int = -1
    """For probabilities: the dimension that sums to one."""
    masked: bool = False
    """At least a tenth of the values are exact zeros: their places are kept."""
    symmetric: bool = False
    sign: int = 0
    """The sign that all drawn values get, or 0."""
    still: str = ""
    """Not empty: every call of `get_inputs` gives the same values, and what they look like."""


def domain_of(value: Any, *, still: bool) -> InputDomain:
    """Reads a domain off shipped values; `still` says that `get_inputs` gives the same ones every time. Python numbers
    are `fixed`; so are integers, and labels held as floats, where `get_inputs` itself varies them."""
    if not isinstance(value, torch.Tensor):
        return InputDomain("fixed", still="it is a Python number" if isinstance(value, (int, float)) else "")
    if value.numel() == 0:
        return InputDomain("fixed")
    if not value.is_floating_point():
        return _discrete(core_of(value), still)
    core = computable(core_of(value))
    low, high = float(core.min()), float(core.max())
    integral = all(bool((piece == piece.round()).all()) for piece in _pieces(core))
    if low == high and still and (integral or core.numel() > 1) and _unit_dim(core) is None:
        sign = (low > 0) - (low < 0)
        return InputDomain("real", sign=sign, still="it is constant")
    if integral:
        if still:
            return InputDomain("labels", symmetric=_symmetric(core), still="its values look like labels")
        return InputDomain("fixed")
    return _continuous(core, low, high)


def _discrete(value: torch.Tensor, still: bool) -> InputDomain:
    """Integers and booleans that never change are redrawn among themselves, unless no other value is like them."""
    what = "booleans" if value.dtype is torch.bool else "integers" if not value.is_complex() else "complex"
    if not still:
        return InputDomain("fixed")
    if value.is_complex() or bool((value == value.flatten()[0]).all()) or _only_one_order(value):
        return InputDomain("fixed", still=f"its values are {what}")
    return InputDomain("integers", symmetric=_symmetric(value), still=f"its values are {what}")


def _only_one_order(value: torch.Tensor) -> bool:
    """Whether the rows rise, or fall, through every integer of their range: positions, not labels."""
    rows = value.reshape(-1, value.shape[-1]) if value.dim() else value.reshape(1, 1)
    # What holds of all holds of a few: most tensors are told from them, without copies of the whole.
    return _in_order(rows[:_FEW_ROWS, :_FEW_COLUMNS]) and _in_order(rows)


def _in_order(rows: torch.Tensor) -> bool:
    steps = rows.long().diff(dim=1)
    return rows.shape[1] > 1 and bool((steps.abs() == 1).all()) and bool((steps == steps[:, :1]).all())


def _continuous(value: torch.Tensor, low: float, high: float) -> InputDomain:
    """The domain of values that are not all whole."""
    dim = _unit_dim(value) if low >= 0 else None
    if dim is not None:
        return InputDomain("probability", dim)
    dim = _unit_dim(value, torch.exp) if high <= 0 else None
    if dim is not None:
        return InputDomain("log_probability", dim)
    masked = sum(int((piece == 0).sum()) for piece in _pieces(value)) >= 0.1 * value.numel()
    domain: Domain = "real" if low < 0 else "unit" if high <= 1 else "positive"
    return InputDomain(domain, masked=masked, symmetric=_symmetric(value))


def _symmetric(value: torch.Tensor) -> bool:
    square = value.dim() >= 2 and value.shape[-1] == value.shape[-2] > 1
    return square and bool((value == value.mT).all())


def _unit_dim(value: torch.Tensor, of: _Map = torch.Tensor.detach) -> int | None:
    """The innermost dimension along which what `of` makes of the values sums to one everywhere."""
    # Sums of 16-bit values are as far from one as the values were rounded.
    near = max(1e-3, 2 * float(torch.finfo(value.dtype).eps))
    for dim in reversed(range(value.dim())):
        if value.shape[dim] > 1 and all(
            bool(((_sums(part, dim, of) - 1).abs() < near).all()) for part in _parts(value, dim)
        ):
            return dim
    return None


def _sums(value: torch.Tensor, dim: int, of: _Map) -> torch.Tensor:
    """Sums in float64 along a dimension."""
    width = max(1, _piece(value) * value.shape[dim] // value.numel())
    sums = [of(piece).sum(dim, dtype=torch.float64) for piece in torch.split(value, width, dim)]
    return torch.stack(sums).sum(0)


def _parts(value: torch.Tensor, kept: int) -> Iterator[torch.Tensor]:
    """The value cut along its first dimension other than `kept`, so that a few tell most values from distributions."""
    across = next((dim for dim in range(value.dim()) if dim != kept and value.shape[dim] > 1), None)
    if across is None:
        yield value
    else:
        yield from torch.split(value, max(1, _piece(value) * value.shape[across] // value.numel()), across)


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The value a piece at a time: what is computed of each is small beside a tensor that hardly fits the memory."""
    return iter(torch.split(value.view(-1), _piece(value))) if value.is_contiguous() else _parts(value, -1)


def _piece(value: torch.Tensor) -> int:
    return budget_of(value.device).piece(_PIECE, 8)


def redrawn_labels(value: torch.Tensor, generator: torch.Generator, symmetric: bool) -> torch.Tensor:
    """Slices along the first dimension where they differ, drawn with replacement: each row of a mask, each one-hot
    vector stays whole. What is sorted or symmetric stays so."""
    dim = next(d for d in range(value.dim()) if bool((value != value.narrow(d, 0, 1)).any()))
    dim = value.dim() - 1 if symmetric else dim
    count = value.shape[dim]
    picks = torch.randint(0, count, (count,), generator=generator, device=value.device)
    if value.numel() == count:
        flat = value.flatten()
        rises = bool((flat[1:] >= flat[:-1]).all())
        if rises or bool((flat[1:] <= flat[:-1]).all()):
            picks = picks.sort().values
    drawn = value.index_select(dim, picks)
    return drawn.index_select(dim - 1, picks) if symmetric else drawn


def redrawn_integers(value: torch.Tensor, generator: torch.Generator, symmetric: bool) -> torch.Tensor:
    """Integers and booleans within the range that was seen: booleans and symmetric matrices as labels; rows without
    repetition in another order; sorted rows sorted, with their ends; all others drawn evenly from the range."""
    if value.dtype is torch.bool or symmetric:
        return redrawn_labels(value.long(), generator, symmetric).to(value.dtype)
    rows = value.reshape(-1, value.shape[-1]).long()
    steps = rows.diff(dim=1)
    low, high = int(rows.min()), int(rows.max())
    drawn = torch.randint(low, high + 1, rows.shape, generator=generator, device=value.device)
    if rows.shape[1] > 1 and bool((steps >= 0).all()):
        drawn = _rising(rows, drawn, strictly=bool((steps > 0).all()))
    elif rows.shape[1] > 1 and bool((rows.sort(dim=1).values.diff(dim=1) > 0).all()):
        order = torch.rand(rows.shape, generator=generator, device=value.device).argsort(dim=1)
        drawn = rows.gather(1, order)
    return drawn.reshape(value.shape).to(value.dtype)


def _rising(rows: torch.Tensor, drawn: torch.Tensor, *, strictly: bool) -> torch.Tensor:
    """`drawn` as sorted rows between the ends of `rows`; offsets of segments keep their first and last value."""
    width = rows.shape[1]
    ramp = (
        torch.arange(width, device=rows.device) if strictly else torch.zeros(width, dtype=torch.int64).to(rows.device)
    )
    first, last = rows[:, :1], rows[:, -1:] - ramp[-1]
    between = first + (drawn - drawn.min()) % (last - first + 1)
    between[:, :1], between[:, -1:] = first, last
    return between.sort(dim=1).values + ramp


def within(
    drawn: torch.Tensor, shipped: torch.Tensor | None, domain: InputDomain, signed: bool
) -> torch.Tensor:  # fmt: skip
    """Real values brought into a domain. With `signed`, what was merely non-negative may take both signs; `shipped`
    values are needed where the domain is masked."""
    if domain.domain == "probability":
        return drawn.softmax(domain.dim)
    if domain.domain == "log_probability":
        return drawn.log_softmax(domain.dim)
    if domain.sign:
        return drawn.abs_().mul_(domain.sign)
    if not signed and domain.domain == "unit":
        drawn = drawn.sigmoid_()
    elif not signed and domain.domain == "positive":
        drawn = drawn.abs_()
    if domain.symmetric:
        drawn = (drawn + drawn.mT).div_(2)
    return drawn.masked_fill_(shipped == 0, 0) if domain.masked and shipped is not None else drawn


@dataclass(frozen=True, slots=True)
class Place:
    """How a tensor lies in its memory; says nothing of what is there."""

    shape: torch.Size
    strides: tuple[int, ...]
    offset: int
    plain: bool
    """Row-major from the first element on."""
    count: int
    """Elements that the memory holds."""


def place_of(value: torch.Tensor) -> Place:
    """How a tensor lies."""
    plain = value.is_contiguous() and value.storage_offset() == 0
    count = value.untyped_storage().nbytes() // value.element_size()
    return Place(value.shape, tuple(value.stride()), int(value.storage_offset()), plain, count)


def like(place: Place, drawn: torch.Tensor) -> torch.Tensor:
    """`drawn` with the strides and the storage offset of another tensor."""
    if place.plain:
        return drawn.contiguous()
    base = torch.zeros(place.count, dtype=drawn.dtype, device=drawn.device)
    return base.as_strided(place.shape, place.strides, place.offset).copy_(drawn)


def computable(value: torch.Tensor) -> torch.Tensor:
    """8-bit floats as float32: torch has no arithmetic for them."""
    return value.float() if value.is_floating_point() and value.itemsize == 1 else value


def core_of(value: torch.Tensor) -> torch.Tensor:
    """A view of the elements that do not share memory: what was expanded, before it was."""
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            value = value.narrow(dim, 0, 1)
    return value
