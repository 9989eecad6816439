"""What cuDNN's convolutions that cut at zero compute, by operators that every device has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

CUTS = frozenset({"convolution_relu", "convolution_add_relu"})
"""What plans call them."""


def cut_convolution(arguments: Mapping[str, Any]) -> torch.Tensor:
    """relu(W * x + b + alpha z), by the arguments of `cudnn_convolution_add_relu`; those of `cudnn_convolution_relu`
    have no z."""
    names = ("self", "weight", "bias", "stride", "padding", "dilation")
    plain = [arguments[name] for name in names]
    spatial = plain[1].dim() - 2
    found = torch.ops.aten.convolution(*plain, False, [0] * spatial, arguments["groups"])
    if "z" in arguments:
        alpha = arguments.get("alpha")
        found = found + arguments["z"] * (1 if alpha is None else alpha)
    return torch.relu(found)
