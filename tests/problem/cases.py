"""Problem files as text, written where a test wants them."""

from pathlib import Path

from warpsmith.kernels.problem import Problem, load_problem

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def model(forward: str, *, arguments: str = "x", init: str = "", inputs: str = "torch.randn(6, 10)") -> str:
    """A problem file around a forward body (an expression or statements with `return`)."""
    body = forward if "return" in forward else f"return {forward}"
    lines = "\n        ".join(body.splitlines())
    setup = "\n        ".join(["super().__init__()", *init.splitlines()])
    return (
        f"{HEADER}\n\nclass Model(nn.Module):\n    def __init__(self):\n        {setup}\n\n"
        f"    def forward(self, {arguments}):\n        {lines}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def write(folder: Path, source: str, *, name: str = "problem.py") -> Path:
    """The file that holds `source`."""
    path = folder / name
    path.write_text(source)
    return path


def problem(folder: Path, forward: str, **parts: str) -> Problem:
    """`model` written and loaded."""
    return load_problem(str(write(folder, model(forward, **parts))))
