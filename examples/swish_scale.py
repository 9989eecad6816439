"""Swish times a factor that is only known at run time: a Python number among the inputs."""

import torch
from torch import nn

rows = 512
columns = 1024
factor = 1.75


class Model(nn.Module):
    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * torch.sigmoid(x) * scale


def get_inputs():
    return [torch.randn(rows, columns), factor]


def get_init_inputs():
    return []
