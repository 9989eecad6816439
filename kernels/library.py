"""The ATen operators that plans may call: by the name that plans use, the overload behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the allow-list: the overload that computes it, and the one that writes into `out=` without a
    copy, where ATen has one: an `out=` that the dispatcher lists as CompositeExplicitAutograd was generated, and calls
    the other one and copies."""

    overload: str
    out: str | None = None
    result: int | None = None
    """Which of several results it stands for."""
    outs: tuple[str, ...] = ("out",)
    """What the results are called there."""


_MAX = ("out", "indices")

ALLOWED: Mapping[str, Operator] = {
    "mm": Operator("mm.default", "mm.out"),
    "bmm": Operator("bmm.default", "bmm.out"),
    "addmm": Operator("addmm.default", "addmm.out"),
    "baddbmm": Operator("baddbmm.default", "baddbmm.out"),
    "matmul": Operator("matmul.default", "matmul.out"),
    "convolution": Operator("convolution.default"),
    "convolution_relu": Operator("cudnn_convolution_relu.default"),
    "convolution_add_relu": Operator("cudnn_convolution_add_relu.default"),
    "scaled_dot_product_attention": Operator("scaled_dot_product_attention.default"),
    "max_pool2d": Operator("max_pool2d_with_indices.default", "max_pool2d_with_indices.out", 0, _MAX),
    "max_pool2d_indices": Operator("max_pool2d_with_indices.default", "max_pool2d_with_indices.out", 1, _MAX),
    "max_pool3d": Operator("max_pool3d_with_indices.default", "max_pool3d_with_indices.out", 0, _MAX),
    "max_pool3d_indices": Operator("max_pool3d_with_indices.default", "max_pool3d_with_indices.out", 1, _MAX),
    "avg_pool2d": Operator("avg_pool2d.default", "avg_pool2d.out"),
    "avg_pool3d": Operator("avg_pool3d.default", "avg_pool3d.out"),
    "adaptive_avg_pool2d": Operator("_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.out"),
    "adaptive_avg_pool3d": Operator("_adaptive_avg_pool3d.default", "adaptive_avg_pool3d.out"),
    "adaptive_max_pool2d": Operator("adaptive_max_pool2d.default", "adaptive_max_pool2d.out", 0, _MAX),
    "adaptive_max_pool3d": Operator("adaptive_max_pool3d.default", "adaptive_max_pool3d.out", 0, _MAX),
    "cumsum": Operator("cumsum.default", "cumsum.out"),
    "cumprod": Operator("cumprod.default", "cumprod.out"),
    "cat": Operator("cat.default", "cat.out"),
    "clone": Operator("clone.default"),
    "constant_pad_nd": Operator("constant_pad_nd.default"),
    "gather": Operator("gather.default", "gather.out"),
    "index_select": Operator("index_select.default", "index_select.out"),
    "index": Operator("index.Tensor", "index.Tensor_out"),
    "embedding": Operator("embedding.default"),
    "lstm": Operator("lstm.input", result=0),
    "lstm_h": Operator("lstm.input", result=1),
    "lstm_c": Operator("lstm.input", result=2),
    "gru": Operator("gru.input", result=0),
    "gru_h": Operator("gru.input", result=1),
    "rnn_tanh": Operator("rnn_tanh.input", result=0),
    "rnn_tanh_h": Operator("rnn_tanh.input", result=1),
    "rnn_relu": Operator("rnn_relu.input", result=0),
    "rnn_relu_h": Operator("rnn_relu.input", result=1),
}


@cache
def overload(name: str) -> Any:
    """The ATen overload of that name, `mm.out` for instance."""
    packet, variant = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), variant)


@cache
def parameters(name: str) -> tuple[Any, ...]:
    """The schema's arguments of an allowed operator, in order."""
    return tuple(overload(ALLOWED[name].overload)._schema.arguments)


def leaves_its_result(name: str, kwargs: Mapping[str, Any], *, in_order: bool = True) -> bool:
    """Whether a call can only give a tensor of its own, which would have to be copied to be somewhere else. Forward
    convolutions are cuDNN's as a rule, which has an `out=`; its transposed ones have none. That of a pooling with
    several results is for row-major tensors, `in_order`."""
    if name == "convolution":
        return bool(kwargs.get("transposed"))
    return ALLOWED[name].out is None or not (in_order or len(ALLOWED[name].outs) == 1)


def name_of(packet: str, result: int | None) -> str | None:
    """What plans call result `result` of an ATen operator, or None where it is not among the allowed ones."""
    for name, operator in ALLOWED.items():
        if operator.overload.split(".")[0] == packet and operator.result == result:
            return name
    return None
