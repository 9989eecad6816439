"""Floating-point operations of graph nodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.flop_counter import flop_registry

from warpsmith.kernels.canonical import Canonical
from warpsmith.kernels.device import Unit
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode, TensorSpec

_TF32_BY_DEFAULT = ("convolution", "cudnn_convolution", "lstm", "gru", "rnn")
"""What cuDNN computes, in TF32 unless torch is told not to; products keep float32 (torch.backends.cudnn.allow_tf32,
torch.backends.cuda.matmul.allow_tf32)."""
_SIXTEEN_BITS = ("float16", "bfloat16")


def flops_of(form: Canonical, operands: Sequence[TensorSpec], out: TensorSpec) -> int:
    """1 an element for pointwise operators, 1 an input element for reductions, 2 M N K for products.

    Anchors: PyTorch's own count where it has one (convolution, attention), else 1 an element of the largest
    operand or output.
    """
    if form.pattern in ("view", "broadcast", "constant"):
        return 0
    if form.pattern == "pointwise":
        return out.numel
    if form.pattern == "reduction":
        return operands[0].numel
    if form.pattern == "matmul":
        return 2 * out.numel * operands[0].shape[-1]
    counted = _registered(form, operands, out)
    return counted if counted is not None else max([out.numel, *(spec.numel for spec in operands)])


def bytes_moved(form: Canonical, operands: Sequence[TensorSpec], out: TensorSpec) -> int:
    """Bytes read plus written by a node that runs alone: its operands and its result, each once; of a tensor in which
    it looks elements up only the sectors that those lie in."""
    if form.pattern in ("view", "broadcast"):
        return 0
    read = [spec.nbytes for spec in operands]
    if form.op in _LOOKED_UP:
        read[0] = min(read[0], out.nbytes * _LOOKED_UP[form.op])
    return sum(read) + out.nbytes


_LOOKED_UP = {"gather": 8, "index": 1, "index_select": 1, "embedding": 1}
"""What looks elements up in its first operand: the bytes read for each of the result. Those of a gather lie anywhere,
in a sector of 32 bytes each; the others take whole rows."""


def fastest_unit(node: OpNode, graph: OpGraph) -> Unit:
    """Which of a device's units may do a node's operations, if a library computes it: no time is believed that they
    could not reach."""
    if node.pattern not in ("matmul", "anchor"):
        return "fp32"
    operand = next((graph.spec(arg.name).dtype for arg in node.args if isinstance(arg, NodeRef)), node.out.dtype)
    if operand in _SIXTEEN_BITS:
        return "half"
    cudnn = node.pattern == "anchor" and node.op.startswith(_TF32_BY_DEFAULT)
    return "tf32" if cudnn and operand == "float32" else "fp32"


def flops_by_unit(graph: OpGraph) -> dict[Unit, int]:
    """Operations of all nodes, by the unit that may do them."""
    found: dict[Unit, int] = {}
    for node in graph.nodes:
        unit = fastest_unit(node, graph)
        found[unit] = found.get(unit, 0) + node.flops
    return found


def _registered(form: Canonical, operands: Sequence[TensorSpec], out: TensorSpec) -> int | None:
    count = flop_registry.get(getattr(torch.ops.aten, form.op, None))
    if count is None or "output" in form.kwargs:
        return None
    pending = iter(operands)
    tensors = {ref: _meta(next(pending)) for ref in form.args if isinstance(ref, NodeRef)}
    args = [tensors[arg] if isinstance(arg, NodeRef) else arg for arg in form.args]
    return int(count(*args, **form.kwargs, out_val=_meta(out)))


def _meta(spec: TensorSpec) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
