"""Canonical arguments of primitive operators: one spelling for each, whatever overload the trace recorded.

view(x, shape) · expand(x, shape) · permute(x, dims) · unsqueeze(x, dim) · squeeze(x, dims) · flip(x, dims)
· roll(x, shifts, dims) · select(x, dim, index) · slice(x, dim, start, end, step) · unfold(x, dim, size, step)
· as_strided(x, shape, strides, offset, strides of x) · sum, prod, amax, amin, any, all, argmax,
argmin(x, dims, keepdim) · cumsum, cumprod(x, dim) · mm(a, b) · bmm(a, b) · full(shape, value) ·
arange(start, end, step) · to_copy(x, dtype=name) · pointwise operators in ATen's positional order · anchors as
ATen has them. Dims and positions are not negative, and 0 <= start <= end <= size. An anchor with several outputs
is one node for each that is used, told by `output=index`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.decompose import POINTWISE, REDUCTIONS, SCANS, VIEWS, pattern_of, words
from warpsmith.kernels.opgraph import NodeRef, Pattern, TensorSpec


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded operator call: arguments by schema name, defaults filled in, tensors as NodeRefs."""

    packet: str
    positional: tuple[str, ...]
    """Schema names of the positional arguments, in order."""
    values: dict[str, Any]
    defaults: dict[str, Any]
    source: TensorSpec | None
    """Spec of the first tensor argument."""
    out: TensorSpec


@dataclass(frozen=True, slots=True)
class Canonical:
    """A primitive operator with its canonical arguments."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pattern: Pattern


_IDENTITIES = words("alias detach clone contiguous lift_fresh lift_fresh_copy")
_RENAMED = {
    "_unsafe_view": "view",
    "reshape": "view",
    "transpose": "permute",
    "t": "permute",
    "_to_copy": "to_copy",
    "convert_element_type": "to_copy",
    "iota": "arange",
}
_FILLS = {
    "full": None,
    "full_like": None,
    "scalar_tensor": None,
    "zeros": 0,
    "zeros_like": 0,
    "ones": 1,
    "ones_like": 1,
}
_BOOLEAN = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
_PLACEMENT = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking", "requires_grad"))


def canonical(call: Call) -> Canonical | NodeRef:
    """The canonical form of a call, or the operand itself where the call changes nothing."""
    op = _RENAMED.get(call.packet, call.packet)
    first = call.values[call.positional[0]] if call.positional else None
    if op in _IDENTITIES:
        return _operand(first)
    if call.packet in _FILLS:
        return _fill(call)
    if op == "to_copy":
        return _cast(call)
    if op == "arange":
        return _arange(call)
    if op in VIEWS or op == "expand" or op == "permute":
        return _view(op, call)
    if op in REDUCTIONS and call.source is not None:
        return _reduction(op, call, call.source)
    if op in SCANS and call.source is not None:
        return Canonical(op, (_operand(call.values["self"]), call.values["dim"] % len(call.out.shape)), {}, "scan")
    return _plain(op, call)


def _operand(value: Any) -> NodeRef:
    if not isinstance(value, NodeRef):
        raise TypeError(f"an operator that changes nothing was applied to {value!r}")
    return value


def _fill(call: Call) -> Canonical:
    fixed = _FILLS[call.packet]
    value: Any = fixed if fixed is not None else call.values.get("fill_value", call.values.get("s"))
    if call.out.dtype == "bool":
        value = bool(value)
    elif call.out.dtype.startswith(("float", "bfloat")):
        value = float(value)
    return Canonical("full", (call.out.shape, value), {}, "constant")


def _cast(call: Call) -> Canonical | NodeRef:
    operand = _operand(call.values[call.positional[0]])
    if call.source is not None and call.source.dtype == call.out.dtype:
        return operand
    return Canonical("to_copy", (operand,), {"dtype": call.out.dtype}, "pointwise")


def _arange(call: Call) -> Canonical:
    start, step = call.values.get("start") or 0, call.values.get("step")
    step = 1 if step is None else step
    end = call.values["end"] if "end" in call.values else start + call.values["length"] * step
    return Canonical("arange", (start, end, step), {}, "constant")


def _view(op: str, call: Call) -> Canonical | NodeRef:
    assert call.source is not None
    operand = _operand(call.values[call.positional[0]])
    arguments = _VIEW_ARGUMENTS[op](call, call.source)
    if arguments is None:
        return operand
    return Canonical(op, (operand, *arguments), {}, pattern_of(op))


def _reshaped(call: Call, source: TensorSpec) -> tuple[Any, ...] | None:
    return None if call.out.shape == source.shape else (call.out.shape,)


def _permuted(call: Call, source: TensorSpec) -> tuple[Any, ...] | None:
    rank = len(source.shape)
    dims = list(range(rank))
    if call.packet == "permute":
        dims = [d % rank for d in call.values["dims"]]
    elif call.packet == "transpose" and rank:
        a, b = call.values["dim0"] % rank, call.values["dim1"] % rank
        dims[a], dims[b] = dims[b], dims[a]
    elif call.packet == "t":
        dims.reverse()
    return None if dims == list(range(rank)) else (tuple(dims),)


def _unsqueezed(call: Call, source: TensorSpec) -> tuple[Any, ...]:
    return (call.values["dim"] % len(call.out.shape),)


def _squeezed(call: Call, source: TensorSpec) -> tuple[Any, ...] | None:
    rank = len(source.shape)
    asked = call.values.get("dim", list(range(rank)))
    listed = [asked] if isinstance(asked, int) else list(asked)
    dims = tuple(sorted(d % rank for d in listed if rank and source.shape[d] == 1))
    return (dims,) if dims else None


def _flipped(call: Call, source: TensorSpec) -> tuple[Any, ...] | None:
    dims = tuple(sorted(d % len(source.shape) for d in call.values["dims"]))
    return (dims,) if dims else None


def _rolled(call: Call, source: TensorSpec) -> tuple[Any, ...] | None:
    """Shifts from 0 up to the size, those that move something."""
    dims = [d % len(source.shape) for d in call.values["dims"]]
    turns = [(shift % source.shape[d], d) for shift, d in zip(call.values["shifts"], dims, strict=True)]
    kept = [turn for turn in turns if turn[0]]
    return (tuple(shift for shift, _ in kept), tuple(d for _, d in kept)) if kept else None


def _selected(call: Call, source: TensorSpec) -> tuple[Any, ...]:
    dim = call.values["dim"] % len(source.shape)
    return (dim, call.values["index"] % source.shape[dim])


def _sliced(call: Call, source: TensorSpec) -> tuple[Any, ...] | None:
    dim = call.values["dim"] % len(source.shape)
    start, end, step = slice(call.values["start"], call.values["end"], call.values["step"]).indices(source.shape[dim])
    if (start, step) == (0, 1) and end == source.shape[dim]:
        return None
    return (dim, start, max(start, end), step)


def _unfolded(call: Call, source: TensorSpec) -> tuple[Any, ...]:
    return (call.values["dimension"] % len(source.shape), call.values["size"], call.values["step"])


def _restrided(call: Call, source: TensorSpec) -> tuple[Any, ...]:
    """Shape, strides and offset, then the strides that the operand has in memory: positions there are what they count
    in. Where those leave gaps, no index of the operand stands for a position."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(source.strides, source.shape, strict=True) if n > 1):
        if stride != expected:
            raise TypeError("as_strided of a tensor that has gaps in memory")
        expected *= size
    offset = call.values["storage_offset"]
    start = source.offset if offset is None else offset
    return tuple(call.values["size"]), tuple(call.values["stride"]), start - source.offset, source.strides


_VIEW_ARGUMENTS: dict[str, Callable[[Call, TensorSpec], tuple[Any, ...] | None]] = {
    "view": _reshaped,
    "expand": _reshaped,
    "permute": _permuted,
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "flip": _flipped,
    "roll": _rolled,
    "select": _selected,
    "slice": _sliced,
    "unfold": _unfolded,
    "as_strided": _restrided,
}


def _reduction(op: str, call: Call, source: TensorSpec) -> Canonical | NodeRef:
    rank = len(source.shape)
    operand = _operand(call.values["self"])
    if rank == 0 and op in ("sum", "prod", "amax", "amin") and source.dtype == call.out.dtype:
        return operand
    asked = call.values.get("dim")
    listed = [asked] if isinstance(asked, int) else list(asked or range(rank))
    dims = tuple(sorted(d % rank for d in listed)) if rank else ()
    return Canonical(op, (operand, dims, bool(call.values.get("keepdim", False))), {}, "reduction")


def _plain(op: str, call: Call) -> Canonical:
    """Pointwise operators, products and anchors: ATen's order, without placement and trailing defaults."""
    args = [call.values[name] for name in call.positional]
    extra = {
        name: _name_dtype(value)
        for name, value in call.values.items()
        if name not in call.positional and name not in _PLACEMENT and value != call.defaults.get(name)
    }
    if op == "rsub":
        op, args, extra = "sub", [args[1], args[0]], {}
    if call.out.dtype == "bool":
        op = _BOOLEAN.get(op, op)
    pattern = pattern_of(op)
    if pattern == "anchor" or extra:
        while (
            args
            and call.positional[len(args) - 1] in call.defaults
            and args[-1] == call.defaults.get(call.positional[len(args) - 1])
        ):
            args.pop()
        pattern = "anchor"
    elif op in POINTWISE and op != "clamp":
        args = args[: _ARITY.get(op, 1)]
    return Canonical(op, tuple(_name_dtype(value) for value in args), extra, pattern)


_ARITY: dict[str, int] = dict.fromkeys(
    words("""
    add sub mul div pow atan2 minimum maximum fmod remainder hypot copysign eq ne lt le gt ge
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    """),
    2,
) | {"where": 3}


def _name_dtype(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return tuple(_name_dtype(item) for item in value)
    return value
