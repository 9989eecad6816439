"""Executes an OpGraph with PyTorch on real tensors: the reference meaning of every primitive operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.tracing import ONE_AT_A_TIME


def interpret(
    graph: OpGraph,
    inputs: Sequence[Any],
    parameters: Mapping[str, Tensor],
    *,
    precision: torch.dtype | None = None,
) -> list[Tensor]:
    """Outputs of the graph for flat inputs of forward and named parameters (as in `Instance`).

    With `precision` (say `torch.float64`) all floating values are held in that type, casts and fills too.
    """
    values = {name: _leaf(leaf.ref, inputs, parameters) for name, leaf in graph.inputs.items()}
    for name, leaf in graph.inputs.items():
        values[name] = _as_dtype(values[name], leaf.spec.dtype, precision)
    last_use = _last_uses(graph)
    for node in graph.nodes:
        values[node.name] = evaluated(node, values, precision)
        for name in last_use.get(node.name, ()):
            del values[name]
    return [values[ref.name] for ref in graph.outputs]


def _leaf(ref: str, inputs: Sequence[Any], parameters: Mapping[str, Tensor]) -> Tensor:
    if ref.startswith("param:"):
        return parameters[ref.removeprefix("param:")].detach()
    value = inputs[int(ref.removeprefix("in"))]
    return value if isinstance(value, Tensor) else torch.tensor(value)


def _as_dtype(value: Tensor, dtype: str, precision: torch.dtype | None) -> Tensor:
    return value.to(_held(dtype, precision))


def _held(dtype: str, precision: torch.dtype | None) -> torch.dtype:
    """The dtype in which values of a graph dtype are held."""
    named: torch.dtype = getattr(torch, dtype)
    return precision if precision is not None and named.is_floating_point else named


def _last_uses(graph: OpGraph) -> dict[str, list[str]]:
    """Node -> names that nothing after it reads."""
    last: dict[str, str] = {}
    for node in graph.nodes:
        for name in _names((node.args, node.kwargs)):
            last[name] = node.name
    kept = {ref.name for ref in graph.outputs}
    uses: dict[str, list[str]] = {}
    for name, reader in last.items():
        if name not in kept:
            uses.setdefault(reader, []).append(name)
    return uses


def _names(arguments: Any) -> list[str]:
    return [leaf.name for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, NodeRef)]


def evaluated(
    node: OpNode, values: Mapping[str, Tensor], precision: torch.dtype | None = None, device: torch.device | None = None
) -> Tensor:
    """The value of one node; without a device, constants lie where the values do."""
    args = pytree.tree_map_only(NodeRef, lambda ref: values[ref.name], node.args)
    kwargs = pytree.tree_map_only(NodeRef, lambda ref: values[ref.name], dict(node.kwargs))
    device = device or next((value.device for value in values.values()), torch.device("cpu"))
    held = _held(node.out.dtype, precision)
    if node.op == "full":
        return torch.full(args[0], args[1], dtype=held, device=device)
    if node.op == "arange":
        return torch.arange(*args, dtype=held, device=device)
    if node.op == "to_copy":
        return args[0].to(held)  # type: ignore[no-any-return]
    if node.pattern == "anchor":
        return _anchor(node.op, args, kwargs)
    if node.op in _OWN_SPELLING:
        return _OWN_SPELLING[node.op](*args)
    found: Tensor = _called(getattr(torch.ops.aten, node.op), args, kwargs)
    return found


def _called(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with ONE_AT_A_TIME:
        return operator(*args, **kwargs)


def _anchor(op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    output = kwargs.pop("output", None)
    if isinstance(kwargs.get("dtype"), str):
        kwargs["dtype"] = getattr(torch, kwargs["dtype"])
    result = _called(getattr(torch.ops.aten, op), args, kwargs)
    return result if output is None else result[output]  # type: ignore[no-any-return]


def _arg_reduction(find: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def over(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return find(x, dims[0] if dims else None, keepdim)

    return over


def _prod(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = torch.prod(x, dim, keepdim)
    return x


_OWN_SPELLING: dict[str, Callable[..., Tensor]] = {
    "view": torch.reshape,
    "unfold": lambda x, dim, size, step: x.unfold(dim, size, step),
    "as_strided": lambda x, shape, strides, offset, memory: torch.as_strided(
        torch.empty_strided(x.shape, memory, dtype=x.dtype, device=x.device).copy_(x), shape, strides, offset
    ),
    "slice": lambda x, dim, start, end, step: torch.ops.aten.slice.Tensor(x, dim, start, end, step),
    "sum": lambda x, dims, keepdim: torch.sum(x, dims, keepdim),
    "amax": torch.amax,
    "amin": torch.amin,
    "any": lambda x, dims, keepdim: torch.ops.aten.any.dims(x, dims, keepdim),
    "all": lambda x, dims, keepdim: torch.ops.aten.all.dims(x, dims, keepdim),
    "prod": _prod,
    "argmax": _arg_reduction(torch.argmax),
    "argmin": _arg_reduction(torch.argmin),
}
