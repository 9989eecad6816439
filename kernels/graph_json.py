"""An OpGraph as plain data and back: how a confined process hands a graph out. Only known shapes of data are read."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from warpsmith.kernels.opgraph import GraphInput, NodeRef, OpGraph, OpNode, TensorSpec

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (GraphInput, NodeRef, OpGraph, OpNode, TensorSpec)}


def encoded(value: Any) -> Any:
    """Plain data for JSON. TypeError for what a graph does not hold."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return {"float": value.hex()}
    if kind in (tuple, list):
        return {kind.__name__: [encoded(one) for one in value]}
    if kind is frozenset:
        return {"names": sorted(str(one) for one in value)}
    if kind is dict:
        return {"dict": [[encoded(key), encoded(one)] for key, one in value.items()]}
    if kind.__name__ in _KINDS and kind is _KINDS[kind.__name__]:
        return {kind.__name__: {one.name: encoded(getattr(value, one.name)) for one in fields(kind)}}
    raise TypeError(f"a graph holds no {kind.__name__}")


def decoded(data: Any) -> Any:
    """The reverse. ValueError for data of another shape; nothing but the graph's own records is made."""
    if data is None or type(data) in (bool, int, str):
        return data
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError("no part of a graph")
    ((name, content),) = data.items()
    if name == "float":
        return float.fromhex(str(content))
    if name in ("tuple", "list"):
        return (tuple if name == "tuple" else list)(decoded(one) for one in content)
    if name == "names":
        return frozenset(str(one) for one in content)
    if name == "dict":
        return {decoded(key): decoded(one) for key, one in content}
    if name not in _KINDS:
        raise ValueError(f"no part of a graph: {name}")
    try:
        return _KINDS[name](**{str(key): decoded(one) for key, one in content.items()})
    except TypeError as error:
        raise ValueError(f"no {name}: {error}") from error
