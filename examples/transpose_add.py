"""A transposed, hence non-contiguous, input added to a contiguous one."""

import torch
from torch import nn

rows = 768
columns = 512


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def get_inputs():
    return [torch.randn(columns, rows).t(), torch.randn(rows, columns)]


def get_init_inputs():
    return []
