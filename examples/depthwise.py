"""Depthwise convolution with stride and padding, then an activation."""

import torch
from torch import nn

batch_size = 2
channels = 12
height = 66
width = 68


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, (3, 5), stride=(2, 1), padding=(1, 2), groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.conv(x))


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return []
