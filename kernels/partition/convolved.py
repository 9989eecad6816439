"""What a convolution is to a library: how many channels, whether it sums over them, in which layout."""

from __future__ import annotations

from math import prod

from warpsmith.kernels.composite import Convolved
from warpsmith.kernels.opgraph import OpGraph, OpNode

CUT, ADD_CUT = "cudnn_convolution_relu", "cudnn_convolution_add_relu"
"""What torch calls convolutions that add a bias, or a bias and a tensor, and cut at zero."""
_TRANSPOSED, _GROUPS = 6, 8
"""Places among a convolution's arguments."""
_CONVOLUTIONS = frozenset({"convolution", CUT, ADD_CUT})
_DTYPES = frozenset({"float32", "float16", "bfloat16"})
"""Those for which there are tensor cores."""


_WIDE = 5


def groups_of(node: OpNode) -> int:
    """Groups of a convolution; 0 for any other node."""
    return int(node.args[_GROUPS]) if node.op == "convolution" else 0


def is_dense(graph: OpGraph, node: OpNode) -> bool:
    """Whether the node is a convolution that sums over all channels, in a type that tensor cores take."""
    return groups_of(node) == 1 and graph.spec(node.args[0].name).shape[1] > 1 and node.out.dtype in _DTYPES


def is_depthwise(graph: OpGraph, node: OpNode) -> bool:
    """Whether the node is an ordinary convolution of single channels."""
    if node.op != "convolution":
        return False
    x, weight = (graph.spec(ref.name).shape for ref in node.args[:2])
    return not node.args[_TRANSPOSED] and weight[1] == 1 and groups_of(node) == x[1]


def convolved(graph: OpGraph, node: OpNode, *, channels_last: bool) -> Convolved | None:
    """What the cost model needs to know of a convolution; None for any other node."""
    if node.op not in _CONVOLUTIONS:
        return None
    x, weight = (graph.spec(ref.name) for ref in node.args[:2])
    taps = weight.shape[2:]
    *lists, groups = node.args[-4:] if node.op in (CUT, ADD_CUT) else (*node.args[3:6], node.args[_GROUPS])
    stride, padding, dilation = (tuple(one) * (len(taps) // len(one)) for one in lists)
    transposed = node.op == "convolution" and bool(node.args[_TRANSPOSED])
    return Convolved(
        dtype=node.out.dtype,
        channels=x.shape[1] // groups,
        results=node.out.shape[1] // groups,
        groups=groups,
        positions=node.out.shape[0] * prod(node.out.shape[2:]),
        dims=len(taps),
        pointwise=prod(taps) == 1 and set(stride) == {1} and not any(padding),
        transposed=transposed,
        strided=any(step > 1 for step in stride),
        dilated=any(step > 1 for step in dilation),
        wide=any(size >= _WIDE and step > 1 for size, step in zip(taps, stride, strict=True)),
        channels_last=channels_last,
        turned_bytes=x.nbytes + node.out.nbytes,
    )
