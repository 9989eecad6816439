"""Kernel arguments: what an entry point's PTX declares, and values of exactly those widths."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from warpsmith.sandbox.backend import Argument

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(?P<kind>[usbf])(?P<bits>\d+)(?P<array>[^,\[]*\[\s*(?P<count>\d+)\s*\])?"
)
_SCALARS: dict[str, tuple[type[Any], str]] = {
    "i32": (np.int32, "usb"),
    "u32": (np.uint32, "usb"),
    "i64": (np.int64, "usb"),
    "u64": (np.uint64, "usb"),
    "f32": (np.float32, "fb"),
    "f64": (np.float64, "fb"),
}


class ArgumentError(Exception):
    """The plan's arguments do not fit the kernel's parameters."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter as PTX declares it."""

    kind: str
    """`u`, `s`, `b` or `f`."""
    size: int
    """Bytes."""


def entry_parameters(ptx: str) -> dict[str, tuple[Parameter, ...]]:
    """Parameters of every entry point in a PTX module."""
    found: dict[str, tuple[Parameter, ...]] = {}
    for name, body in _ENTRY.findall(ptx):
        parameters = []
        for match in _PARAMETER.finditer(body):
            count = int(match["count"]) if match["array"] else 1
            parameters.append(Parameter(match["kind"], int(match["bits"]) // 8 * count))
        found[name] = tuple(parameters)
    return found


def pack(
    plan_args: Sequence[str | Mapping[str, int | float]],
    parameters: Sequence[Parameter],
    values: Mapping[str, Argument],
) -> list[np.generic]:
    """One numpy scalar for each parameter; tensors as their addresses. ArgumentError where count, name,
    width or kind do not fit: the driver would read past the values that it was given."""
    if len(plan_args) != len(parameters):
        raise ArgumentError(f"the kernel takes {len(parameters)} arguments, the plan gives {len(plan_args)}")
    packed = []
    for position, (given, parameter) in enumerate(zip(plan_args, parameters, strict=True)):
        try:
            packed.append(_pack_one(given, parameter, values))
        except ArgumentError as error:
            raise ArgumentError(f"argument {position}: {error}") from None
    return packed


def _pack_one(
    given: str | Mapping[str, int | float], parameter: Parameter, values: Mapping[str, Argument]
) -> np.generic:
    if not isinstance(given, str):
        if len(given) != 1:
            raise ArgumentError("a typed scalar has exactly one type")
        name, number = next(iter(given.items()))
        return _scalar(name, number, parameter)
    if given not in values:
        raise ArgumentError(f"nothing is called {given!r}; there are {', '.join(sorted(values))}")
    value = values[given]
    if isinstance(value, torch.Tensor):
        if parameter.size != 8 or parameter.kind == "f":
            raise ArgumentError(f"{given} is a tensor, the kernel takes {parameter.size} bytes by value")
        return np.uint64(value.data_ptr())
    return _scalar(_scalar_name(value, parameter), value, parameter)


def _scalar_name(value: int | float, parameter: Parameter) -> str:
    """The type that a plain Python number takes for a parameter."""
    real = parameter.kind == "f" or (parameter.kind == "b" and isinstance(value, float))
    return f"{'f' if real else 'i'}{parameter.size * 8}"


def _scalar(name: str, number: int | float, parameter: Parameter) -> np.generic:
    if name not in _SCALARS:
        raise ArgumentError(f"no scalar type {name!r}; there are {', '.join(_SCALARS)}")
    kind, accepted = _SCALARS[name]
    if np.dtype(kind).itemsize != parameter.size or parameter.kind not in accepted:
        declared = f"{parameter.kind}{parameter.size * 8}"
        raise ArgumentError(f"the plan gives {name}, the kernel takes .{declared}")
    if name[0] != "f" and isinstance(number, float) and not (math.isfinite(number) and number.is_integer()):
        raise ArgumentError(f"{number} is no integer, as {name} asks")
    try:
        value: np.generic = kind(number if name[0] == "f" else int(number))
    except OverflowError:
        raise ArgumentError(f"{number} does not fit {name}") from None
    return value


def parameter_array(packed: Sequence[np.generic]) -> tuple[ctypes.Array[ctypes.c_void_p], list[Any]]:
    """The `void**` that cuLaunchKernelEx takes, and the memory that must outlive the launch call."""
    cells = [np.array([value]) for value in packed]
    addresses = (ctypes.c_void_p * max(1, len(cells)))(*[cell.ctypes.data for cell in cells])
    return addresses, cells
