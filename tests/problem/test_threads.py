"""Problems are drawn and traced by several threads of one process; each gets what it would get alone."""

from concurrent.futures import ThreadPoolExecutor

import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.problem import load_problem

SOURCE = """
import torch
import torch.nn as nn

rows = 8

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=-1)

def get_inputs():
    return [torch.randn(rows, 16)]

def get_init_inputs():
    return [16]
"""
ROUNDS = 10


def test_values_and_graphs_are_those_of_one_thread(tmp_path):
    path = tmp_path / "softmax.py"
    path.write_text(SOURCE)

    def drawn(seed):
        problem = load_problem(str(path), overrides={"rows": str(8 + seed % 3)})
        instance = problem.build(device="cpu", seed=seed)
        graph = capture(problem)
        return [*instance.inputs, *instance.parameters.values()], repr(graph)

    alone = [drawn(seed) for seed in range(ROUNDS)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(drawn, range(ROUNDS)))
    for (one, graph), (other, same_graph) in zip(alone, together, strict=True):
        assert graph == same_graph
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
