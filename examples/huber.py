"""Huber loss: quadratic near zero, linear beyond `delta`."""

import torch
from torch import nn

samples = 1024
outputs = 512
delta = 0.75


class Model(nn.Module):
    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.loss = nn.HuberLoss(delta=threshold)

    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(prediction, target)


def get_inputs():
    return [torch.randn(samples, outputs), torch.randn(samples, outputs)]


def get_init_inputs():
    return [delta]
