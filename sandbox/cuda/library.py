"""The ATen operators that a plan may call: each writes into a tensor that the launcher owns, or leaves its result where
it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from warpsmith.kernels.library import ALLOWED, Operator, overload, parameters
from warpsmith.kernels.records import LibraryStep
from warpsmith.sandbox.cuda.benchmarked import benchmarked
from warpsmith.sandbox.cuda.cut_convolution import CUTS, cut_convolution

Values = Mapping[str, torch.Tensor | int | float]
_ALIGNED = 64
"""Bytes: where memory of torch's begins, so that a kernel finds a result where it would find a buffer."""


class LibraryError(Exception):
    """A library step that is not allowed or whose arguments do not fit."""


@cache
def keywords(name: str) -> frozenset[str]:
    """What an allowed operator takes by name."""
    return frozenset(argument.name for argument in parameters(name))


def library_call(step: LibraryStep, values: Values) -> Callable[[], object]:
    """A function that runs the step on the current stream. LibraryError for what is outside the allow-list."""
    call = _checked(step, values)
    what = call.described() if step.benchmark else None
    target = values.get(step.out)
    if not isinstance(target, torch.Tensor) or step.out.startswith(("in", "param:")):
        raise LibraryError(f"{call.name}: {step.out!r} is no output or scratch buffer")
    shape = target.shape

    def run() -> None:
        with _telling(call.name):
            if step.benchmark:
                benchmarked(partial(call.write, target), what, target.nbytes)
            else:
                call.write(target)
        if target.shape != shape:
            raise LibraryError(f"{call.name} gives the shape {tuple(target.shape)}, {step.out} has {tuple(shape)}")

    return run


def library_result(step: LibraryStep, values: Values, like: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A function that runs the step on the current stream and gives its result where the library has put it, with the
    shape, dtype and strides of `like`, whatever lies there. It is a copy where the library has it in another order, or
    gives what it was given. LibraryError as `library_call`."""
    call = _checked(step, values)
    what = call.described() if step.benchmark else None

    def run() -> torch.Tensor:
        with _telling(call.name):
            found = benchmarked(call.computed, what, like.nbytes) if step.benchmark else call.computed()
            _check_fits(found, like)
            if not _in_place_of(found, like) or found.untyped_storage().data_ptr() in call.given():
                room = torch.empty_strided(like.shape, like.stride(), dtype=found.dtype, device=found.device)
                return room.copy_(found)
            return found

    return run


def _in_place_of(found: torch.Tensor, like: torch.Tensor) -> bool:
    """Whether a kernel finds in a result what it expects of a buffer; dimensions of one element have any stride."""
    pairs = zip(found.shape, found.stride(), like.stride(), strict=True)
    in_order = all(size == 1 or one == other for size, one, other in pairs)
    return in_order and found.data_ptr() % _ALIGNED == 0


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """What an operator does not like becomes a LibraryError."""
    try:
        # Parameters ask for gradients, and ATen writes nothing into `out=` then.
        with torch.no_grad():
            yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, IndexError, ValueError, OverflowError) as error:
        text = str(error).splitlines() or [type(error).__name__]
        raise LibraryError(f"{name}: {text[0]}") from error


def _checked(step: LibraryStep, values: Values) -> _Call:
    name = step.library
    if step.benchmark and name not in {"convolution", *CUTS}:
        raise LibraryError(f"{name}: `benchmark` is for convolutions")
    if name not in ALLOWED:
        raise LibraryError(f"library operator {name!r} is not allowed; there is {', '.join(sorted(ALLOWED))}")
    unknown = set(step.kwargs) - keywords(name)
    if unknown:
        raise LibraryError(f"{name} takes no keyword {', '.join(sorted(unknown))} here")
    given = [_positional(name, argument, values) for argument in step.args]
    named = {key: _tensors(name, value, values) for key, value in step.kwargs.items()}
    return _Call(name, ALLOWED[name], _arguments(name, given, named))


def _positional(name: str, argument: str | Mapping[str, int | float], values: Values) -> Any:
    if isinstance(argument, str):
        return _tensors(name, argument, values)
    if len(argument) != 1:
        raise LibraryError(f"{name}: a typed scalar has exactly one type")
    return next(iter(argument.values()))


def _tensors(name: str, value: Any, values: Values) -> Any:
    """A keyword's value with the tensors that texts in it name."""
    if isinstance(value, (list, tuple)):
        return [_tensors(name, one, values) for one in value]
    if not isinstance(value, str):
        return value
    if value not in values:
        raise LibraryError(f"{name}: nothing is called {value!r}")
    return values[value]


def _arguments(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the schema."""
    schema = parameters(name)
    positional = {argument.name: value for argument, value in zip(schema, given, strict=False)}
    if len(given) > len(schema) or positional.keys() & named.keys():
        raise LibraryError(f"{name} takes {len(schema)} arguments, each once")
    # An optional tensor without a default, such as a bias, may be left out here.
    left_out = [one for one in schema if not one.has_default_value()]
    optional = [one.name for one in left_out if one.type.kind() == "OptionalType"]
    arguments = dict.fromkeys(optional) | positional | dict(named)
    missing = [one.name for one in left_out if one.name not in arguments]
    if missing:
        raise LibraryError(f"{name} needs {', '.join(missing)}")
    return arguments


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator with its arguments."""

    name: str
    operator: Operator
    arguments: dict[str, Any]

    def given(self) -> set[int]:
        """Where the memory of its operands begins: nothing may write there."""
        tensors = (leaf for leaf in tree_leaves(self.arguments) if isinstance(leaf, torch.Tensor))
        return {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def described(self) -> str:
        """The operator with its arguments, of tensors what a library chooses its algorithm by."""
        plain = {
            name: (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else value
            for name, value in self.arguments.items()
        }
        return f"{self.name} {plain}"

    def computed(self) -> torch.Tensor:
        """The result, where the operator has put it."""
        if self.name in CUTS and not self.arguments["self"].is_cuda:
            return cut_convolution(self.arguments)
        found = overload(self.operator.overload)(**self.arguments)
        tensor: torch.Tensor = found if self.operator.result is None else found[self.operator.result]
        return tensor

    def write(self, target: torch.Tensor) -> None:
        """Puts the result into a tensor, without a copy where there is a way."""
        if self.name == "convolution" and target.is_cuda and _by_cudnn(self.arguments):
            _cudnn_convolution(target, self.arguments)
        elif self.name == "cat" and not target.is_contiguous():
            _side_by_side(target, self.arguments)
        elif self.operator.out is not None and self._writes_in_order(target):
            self._write_directly(target)
        else:
            found = self.computed()
            _check_fits(found, target)
            target.copy_(found)

    def _writes_in_order(self, target: torch.Tensor) -> bool:
        """Whether the `out=` may be used: pooling looks at the layout of its input when it writes."""
        if len(self.operator.outs) == 1:
            return True
        tensors = [value for value in self.arguments.values() if isinstance(value, torch.Tensor)]
        return target.is_contiguous() and all(value.is_contiguous() for value in tensors)

    def _write_directly(self, target: torch.Tensor) -> None:
        outs = self.operator.outs
        assert self.operator.out is not None
        if len(outs) == 1:
            overload(self.operator.out)(**self.arguments, out=target)
            return
        wanted = outs[self.operator.result or 0]
        aside = {
            name: torch.empty(0, dtype=torch.int64 if name == "indices" else self._dtype(), device=target.device)
            for name in outs
        }
        overload(self.operator.out)(**self.arguments, **{**aside, wanted: target})

    def _dtype(self) -> torch.dtype:
        """Of what the operator computes from."""
        tensors = (value for value in self.arguments.values() if isinstance(value, torch.Tensor))
        return next((tensor.dtype for tensor in tensors), torch.float32)


def _check_fits(found: torch.Tensor, target: torch.Tensor) -> None:
    if found.shape != target.shape:
        raise ValueError(f"the result has the shape {tuple(found.shape)}, its place {tuple(target.shape)}")
    if found.dtype != target.dtype:
        raise ValueError(f"the result is {found.dtype}, its place {target.dtype}")


def _side_by_side(target: torch.Tensor, arguments: Mapping[str, Any]) -> None:
    """Copies tensors into their parts of another: where that is not row-major, ATen's `cat` is far from the copy rate
    (on an H200 it took 4.9 ms for 450 MB channels last)."""
    tensors, dim = arguments["tensors"], arguments["dim"]
    shape = list(tensors[0].shape)
    shape[dim] = sum(one.shape[dim] for one in tensors)
    if tuple(shape) != tuple(target.shape) or any(one.dtype != target.dtype for one in tensors):
        raise ValueError(f"the result has the shape {tuple(shape)}, its place {tuple(target.shape)}")
    start = 0
    for one in tensors:
        target.narrow(dim, start, one.shape[dim]).copy_(one)
        start += one.shape[dim]


def _cudnn_convolution(target: torch.Tensor, arguments: Mapping[str, Any]) -> None:
    """As eager does it, the result in its place."""
    cudnn: Any = torch.backends.cudnn
    target, arguments = as_planes(target, arguments)
    names = ("weight", "padding", "stride", "dilation", "groups")
    torch.ops.aten.cudnn_convolution.out(
        arguments["input"], *(arguments[name] for name in names), cudnn.benchmark, cudnn.deterministic,
        cudnn.allow_tf32, out=target,
    )  # fmt: skip


def as_planes(target: torch.Tensor, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, Mapping[str, Any]]:
    """A convolution over one dimension as one over planes of height 1: cuDNN has no other, and what eager calls does
    the same on the way."""
    if arguments["weight"].dim() != 3:
        return target, arguments
    planes = {name: arguments[name].unsqueeze(2) for name in ("input", "weight")}
    geometry = {"padding": 0, "stride": 1, "dilation": 1}
    sizes = {name: [first, *arguments[name]] for name, first in geometry.items()}
    return target.unsqueeze(2), {**arguments, **planes, **sizes}


def _by_cudnn(arguments: Mapping[str, Any]) -> bool:
    """Whether eager calls cuDNN's forward convolution, the only one with an `out=` that does not copy."""
    if arguments.get("bias") is not None or arguments["transposed"]:
        return False
    rank = arguments["weight"].dim()
    if arguments["input"].dim() != rank or any(
        len(arguments[n]) != rank - 2 for n in ("stride", "padding", "dilation")
    ):
        return False
    select: Any = getattr(torch._C, "_select_conv_backend", None)
    if select is None:
        return False
    names = (
        "input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups",
    )  # fmt: skip
    chosen = select(*(arguments[name] for name in names))
    return getattr(chosen, "name", "") == "Cudnn"
