"""Layer normalisation with learned scale and shift."""

import torch
from torch import nn

batch_size = 256
features = 1024


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch_size, features) * 2.0 + 1.0]


def get_init_inputs():
    return [features]
