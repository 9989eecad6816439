"""The ATen operators that a plan may call, each writing into a tensor that the launcher owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from warpsmith.kernels.library import ALLOWED, overload, parameters
from warpsmith.kernels.records import LibraryStep

Values = Mapping[str, torch.Tensor | int | float]
Writer = Callable[..., object]


class LibraryError(Exception):
    """A library step that is not allowed or whose arguments do not fit."""


@cache
def keywords(name: str) -> frozenset[str]:
    """What an allowed operator takes by name."""
    return frozenset(argument.name for argument in parameters(name))


def library_call(step: LibraryStep, values: Values) -> Callable[[], object]:
    """A function that runs the step on the current stream. LibraryError for what is outside the allow-list."""
    name = step.library
    if name not in ALLOWED:
        raise LibraryError(f"library operator {name!r} is not allowed; there is {', '.join(sorted(ALLOWED))}")
    unknown = set(step.kwargs) - keywords(name)
    if unknown:
        raise LibraryError(f"{name} takes no keyword {', '.join(sorted(unknown))} here")
    given = [_positional(name, argument, values) for argument in step.args]
    named = {key: _tensors(name, value, values) for key, value in step.kwargs.items()}
    target = values.get(step.out)
    if not isinstance(target, torch.Tensor) or step.out.startswith(("in", "param:")):
        raise LibraryError(f"{name}: {step.out!r} is no output or scratch buffer")
    write, shape = _writer(name, given, named), target.shape

    def run() -> None:
        try:
            # Parameters ask for gradients, and ATen writes nothing into `out=` then.
            with torch.no_grad():
                write(target)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, IndexError, ValueError, OverflowError) as error:
            text = str(error).splitlines() or [type(error).__name__]
            raise LibraryError(f"{name}: {text[0]}") from error
        if target.shape != shape:
            raise LibraryError(f"{name} gives the shape {tuple(target.shape)}, {step.out} has {tuple(shape)}")

    return run


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


def _writer(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> Writer:
    """What puts the operator's result into a tensor."""
    operator = ALLOWED[name]
    compute, schema = overload(operator.overload), parameters(name)
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
    if name == "convolution":
        return lambda target: _convolution(target, arguments)
    if operator.out is not None:
        into = overload(operator.out)
        return lambda target: into(**arguments, out=target)
    return lambda target: _put(target, _computed(compute, arguments, operator.result))


def _computed(compute: Any, arguments: Mapping[str, Any], result: int | None) -> torch.Tensor:
    found = compute(**arguments)
    tensor: torch.Tensor = found if result is None else found[result]
    return tensor


def _put(target: torch.Tensor, found: torch.Tensor) -> None:
    if found.shape != target.shape:
        raise ValueError(f"the result has the shape {tuple(found.shape)}, its place {tuple(target.shape)}")
    if found.dtype != target.dtype:
        raise ValueError(f"the result is {found.dtype}, its place {target.dtype}")
    target.copy_(found)


def _convolution(target: torch.Tensor, arguments: Mapping[str, Any]) -> None:
    """As eager does it. Where that is cuDNN's forward convolution, the result needs no copy."""
    if target.is_cuda and _by_cudnn(arguments):
        cudnn: Any = torch.backends.cudnn
        names = ("weight", "padding", "stride", "dilation", "groups")
        torch.ops.aten.cudnn_convolution.out(
            arguments["input"], *(arguments[name] for name in names), cudnn.benchmark, cudnn.deterministic,
            cudnn.allow_tf32, out=target,
        )  # fmt: skip
        return
    _put(target, _computed(torch.ops.aten.convolution.default, arguments, None))


def _by_cudnn(arguments: Mapping[str, Any]) -> bool:
    if arguments.get("bias") is not None or arguments["transposed"]:
        # ATen's `out=` of the transposed one computes and copies.
        return False
    select: Any = getattr(torch._C, "_select_conv_backend", None)
    if select is None:
        return False
    names = (
        "input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups",
    )  # fmt: skip
    chosen = select(*(arguments[name] for name in names))
    return getattr(chosen, "name", "") == "Cudnn"
