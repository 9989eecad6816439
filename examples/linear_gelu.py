"""A linear layer followed by GELU: product, bias and activation in one kernel."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 128
in_features = 256
out_features = 192


class Model(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
