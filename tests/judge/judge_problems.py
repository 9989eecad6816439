"""Small problem files for the judge's tests."""

from pathlib import Path

from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import CompileReport, KernelStep, LaunchPlan

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""

SOFTMAX = """
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
rows, dim = 8, 300
def get_inputs():
    return [torch.rand(rows, dim)]
def get_init_inputs():
    return []
"""

LAYER_NORM = """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
    def forward(self, x):
        return self.norm(x)
rows, dim = 16, 96
def get_inputs():
    return [torch.rand(rows, dim)]
def get_init_inputs():
    return [dim]
"""

ARGMAX = """
class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)
def get_inputs():
    return [torch.rand(12, 64)]
def get_init_inputs():
    return []
"""

LOG = """
class Model(nn.Module):
    def forward(self, x):
        return torch.log(x)
def get_inputs():
    return [torch.rand(16, 16) + 0.01]
def get_init_inputs():
    return []
"""

HARD_FLOAT = """
class Model(nn.Module):
    def forward(self, x):
        return (x.to(torch.float32) * 3).sum(1) + torch.ones(4, dtype=torch.float32, device=x.device)
def get_inputs():
    return [torch.rand(4, 16)]
def get_init_inputs():
    return []
"""

MATMUL = """
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand(32, 2048), torch.rand(2048, 32)]
def get_init_inputs():
    return []
"""


def problem(folder: Path, text: str, **overrides: str) -> Problem:
    """Writes a problem file and loads it."""
    path = folder / "problem.py"
    path.write_text(HEAD + text)
    return load_problem(str(path), overrides=overrides)


def plan(*args: str, kernel: str = "k", buffers: dict | None = None) -> LaunchPlan:
    """A plan of one launch."""
    step = KernelStep(kernel=kernel, grid=(1, 1, 1), block=(1, 1, 1), args=args)
    return LaunchPlan(steps=(step,), buffers=buffers or {})


def compiled() -> CompileReport:
    """A report as the compiler gives it, for backends that load nothing."""
    return CompileReport(ok=True, arch="sm_90", nvrtc_version="13.0", cached=False, seconds=0.0)
