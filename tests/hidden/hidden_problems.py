"""Small problems of every family for the tests of hidden shapes, and the verdicts on their candidates."""

import asyncio
import random
from pathlib import Path

from warpsmith.app.workbench import bench_for, specs_of
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

def get_init_inputs():
    return []
"""

TEXTS = {
    "map": """
rows, width = 24, 300
class Model(nn.Module):
    def forward(self, x, y):
        return F.gelu(x) * y
def get_inputs():
    return [torch.randn(rows, width), torch.rand(rows, width)]
""",
    "bias": """
rows, width = 40, 96
class Model(nn.Module):
    def forward(self, x, scale):
        return torch.tanh(x) * scale[:, None] + x.T.contiguous().T
def get_inputs():
    return [torch.randn(rows, width), torch.rand(rows)]
""",
    "softmax": """
rows, width = 12, 300
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
def get_inputs():
    return [torch.randn(rows, width)]
""",
    "norm": """
rows, width = 16, 256
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(rows, width)]
""",
    "argmax": """
rows, width = 16, 200
class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)
def get_inputs():
    return [torch.randn(rows, width)]
""",
    "columns": """
batch, depth, width = 4, 40, 96
class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=1)
def get_inputs():
    return [torch.randn(batch, depth, width)]
""",
    "loss": """
samples, outputs = 64, 96
class Model(nn.Module):
    def forward(self, x, y):
        return F.mse_loss(x, y)
def get_inputs():
    return [torch.randn(samples, outputs), torch.randn(samples, outputs)]
""",
    "gemm": """
M, K, N = 96, 128, 64
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(K, N)
    def forward(self, x):
        return F.relu(self.linear(x))
def get_inputs():
    return [torch.randn(M, K)]
""",
}


def write(folder: Path, text: str, name: str = "problem") -> Path:
    """A problem file."""
    path = folder / f"{name}.py"
    path.write_text(HEAD + text)
    return path


def problem(folder: Path, name: str) -> Problem:
    """One of TEXTS, loaded."""
    return load_problem(str(write(folder, TEXTS[name], name)))


def sampled(spec: KernelSpec, count: int, seed: int) -> list[Candidate]:
    """Naive, sensible and random valid candidates of a search space."""
    rng = random.Random(seed)
    chosen = [values for values in (spec.naive, spec.sensible()) if spec.check(values) is None]
    for _ in range(2000 * count):
        if len(chosen) >= count:
            break
        # Of small products few tiles are valid.
        values = spec.naive | {slot.name: rng.choice(slot.values) for slot in spec.choice_slots}
        if spec.check(values) is None:
            chosen.append(values)
    return [spec.emit(values) for values in chosen[:count]]


def verdicts(loaded: Problem, make, *, seed: int | None = None) -> tuple[list[Candidate], list[Outcome]]:
    """Full verdicts in the emulator on the candidates that `make` gives for the specs by family name."""
    bench = bench_for(loaded, device="cpu", arch="sm_90")
    specs = specs_of(bench)
    candidates = make(specs)

    async def body() -> list[Outcome]:
        hidden = HiddenShapes(loaded, bench.graph, specs, BUDGETS["cpu"], seed=seed)
        target = bench.machine.target
        async with Evaluator(loaded.ref, loaded.hash, target, bench.compiler, hidden=hidden) as evaluator:
            return await evaluator.evaluate(candidates, level="full")

    try:
        return candidates, asyncio.run(body())
    finally:
        bench.compiler.close()
