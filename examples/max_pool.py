"""Maximum over dilated windows of two dimensions, and where in its plane each stands."""

import torch
from torch import nn

batch_size = 3
channels = 5
height = 37
width = 41


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1, dilation=2, ceil_mode=True, return_indices=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.pool(torch.relu(x))


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return []
