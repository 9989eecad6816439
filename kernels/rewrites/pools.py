"""Average pooling behind a convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.affine import Chain
from warpsmith.kernels.rewrites.convolutions import Convolution, affine_of, bias_of, convolution_chain, scaled
from warpsmith.kernels.rewrites.draft import Draft, uses
from warpsmith.kernels.rewrites.taps import Fold, folded

_POOLS = {"avg_pool2d": 2, "avg_pool3d": 3}


@dataclass(frozen=True, slots=True)
class _Pooled:
    """An average pooling without padding, behind an affine chain that a convolution begins."""

    node: OpNode
    window: tuple[int, ...]
    stride: tuple[int, ...]
    chain: Chain
    conv: Convolution


def pool_first(graph: OpGraph) -> OpGraph | None:
    """pool(s (W x) + t) = s (W pool(x)) + t for a 1x1 convolution W.

    Holds for all finite values: a mean over a window commutes with what is linear at each position, and the mean of t
    is t. The pooling has no padding, rounds sizes down and divides by the window's size; the convolution has stride 1
    and no padding; s and t have one value a channel; nothing else reads what is pooled; float32 and wider.
    """
    for found in _pooled(graph):
        conv = found.conv
        pointwise = set(conv.stride) == {1} and not any((*conv.padding, *conv.output_padding))
        if pointwise and not conv.transposed and prod(graph.spec(conv.weight.name).shape[2:]) == 1:
            draft = Draft(graph, found.node)
            affine = affine_of(draft, found.chain, conv)
            x = draft.add("pooled", found.node.op, conv.x, found.window, found.stride)
            weight = scaled(draft, conv.weight, affine, 0)
            bias = bias_of(draft, affine, found.node.out.shape[1])
            none = (0,) * conv.rank
            return draft.become(
                "convolution", x, weight, bias, conv.stride, none, conv.dilation, False, none, conv.groups
            )
    return None


def pool_fold(graph: OpGraph) -> OpGraph | None:
    """pool(s (W * x) + t) = W' * x + t, where W' sums the taps of W that each input element meets within a window,
    times s over the window's size.

    Holds for all finite values. The pooling has no padding, rounds sizes down and divides by the window's size, so that
    each window lies within the convolution's output. Of a transposed convolution the pooling's stride must be a
    multiple of the convolution's in each dim, and it must have one group: it becomes an ordinary convolution. Each new
    tap sums an old one at least; nothing else reads what is pooled; float32 and wider.
    """
    for found in _pooled(graph):
        folds = _folds(graph, found)
        if folds is not None:
            return _as_one(graph, found, folds)
    return None


def _pooled(graph: OpGraph) -> Iterator[_Pooled]:
    used = uses(graph)
    for node in graph.nodes:
        rank = _POOLS.get(node.op)
        if rank is None or not used[node.name] or node.kwargs:
            continue
        x, window, *rest = node.args
        window = tuple(window) * (rank if len(window) == 1 else 1)
        stride = tuple(rest[0]) if rest and len(rest[0]) else window
        stride *= rank if len(stride) == 1 else 1
        if len(rest) > 1 and (any(rest[1]) or any(value for value in rest[2:3]) or any(rest[4:])):
            continue
        behind = convolution_chain(graph, x, used)
        if behind is not None and behind[1].rank == rank:
            yield _Pooled(node, window, stride, *behind)


def _folds(graph: OpGraph, found: _Pooled) -> tuple[Fold, ...] | None:
    """One a spatial dim; None where the two are no one convolution."""
    conv = found.conv
    taps = graph.spec(conv.weight.name).shape[2:]
    if conv.transposed and (conv.groups != 1 or any(q % s for q, s in zip(found.stride, conv.stride, strict=True))):
        return None
    folds = []
    for dim in range(conv.rank):
        window, stride, dilation = found.window[dim], conv.stride[dim], conv.dilation[dim]
        if not conv.transposed:
            count = (window - 1) * stride + (taps[dim] - 1) * dilation + 1
            # Tap m of the whole is tap k of the convolution at place j of the window: m = j * stride + k * dilation.
            folds.append(
                Fold(taps[dim], count, 1, 0, dilation, stride, window, found.stride[dim] * stride, conv.padding[dim])
            )
            continue
        extent, wanted = graph.spec(conv.x.name).shape[2 + dim], found.node.out.shape[2 + dim]
        folds.append(_turned(conv, dim, taps[dim], window, found.stride[dim], extent, wanted))
    return tuple(folds) if all(fold.full for fold in folds) else None


def _turned(conv: Convolution, dim: int, taps: int, window: int, step: int, extent: int, wanted: int) -> Fold:
    """The fold of a transposed convolution: input i meets window o with new tap m, where i = o * u + m and the place in
    the window is j = m * stride - padding + k * dilation."""
    stride, padding, dilation = conv.stride[dim], conv.padding[dim], conv.dilation[dim]
    low = -((dilation * (taps - 1) - padding) // stride)
    count = (window - 1 + padding) // stride - low + 1
    u = step // stride
    skip = max(0, -(-low // u))
    # Padding is the same on both sides: more of it makes results before the first one, too.
    while (extent + 2 * (u * skip - low) - count) // u + 1 - skip < wanted:
        skip += 1
    return Fold(taps, count, stride, low * stride - padding, -dilation, 1, window, u, u * skip - low, skip)


def _as_one(graph: OpGraph, found: _Pooled, folds: tuple[Fold, ...]) -> OpGraph:
    draft, conv = Draft(graph, found.node), found.conv
    affine = affine_of(draft, found.chain, conv)
    weight = conv.weight
    if conv.transposed:
        weight = draft.add("turned", "permute", weight, (1, 0, *range(2, 2 + conv.rank)))
    weight = folded(draft, weight, folds)
    weight = draft.add("mean", "div", weight, prod(found.window))
    weight = scaled(draft, weight, affine, 0)
    bias = bias_of(draft, affine, found.node.out.shape[1])
    stride, padding = tuple(fold.step for fold in folds), tuple(fold.padding for fold in folds)
    args = (conv.x, weight, bias, stride, padding, (1,) * conv.rank, False, (0,) * conv.rank, conv.groups)
    made = draft.add("convolved", "convolution", *args)
    return _cut(draft, made, [fold.skip for fold in folds])


def _cut(draft: Draft, made: NodeRef, skips: Sequence[int]) -> OpGraph:
    """The results that are wanted: padding on both sides may make more."""
    wanted = draft.end.out.shape
    longer = [dim for dim, size in enumerate(wanted) if draft.shape(made)[dim] != size]
    if not longer:
        node = draft.nodes.pop(made.name)
        return draft.become(node.op, *node.args)
    for dim in longer[:-1]:
        made = draft.add(f"wanted{dim}", "slice", made, dim, skips[dim - 2], skips[dim - 2] + wanted[dim], 1)
    dim = longer[-1]
    return draft.become("slice", made, dim, skips[dim - 2], skips[dim - 2] + wanted[dim], 1)
