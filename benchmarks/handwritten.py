"""Candidate folders from the kernels under benchmarks/handwritten/, written for the shapes of a problem.

usage: python benchmarks/handwritten.py OUT PROBLEM.py=KIND ...      KIND: softmax layer_norm sum matmul
then:  warpsmith evaluate builtin PROBLEM.py ... --against OUT
       warpsmith judge PROBLEM.py OUT/PROBLEM

The kernels are what somebody writes by hand in an afternoon: a sound plan, no tuning. They take float32 and a problem
of one operator: softmax and layer_norm over the last dimension, sum over one, matmul of two matrices.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels.problem import Instance, load_problem
from warpsmith.tools.verification.oracle import dry_run

KERNELS = Path(__file__).parent / "handwritten"
THREADS = 256
Step = dict[str, Any]


def softmax(instance: Instance, outputs: list[torch.Tensor]) -> Step:
    """A block a row."""
    width = outputs[0].shape[-1]
    return step("softmax", (outputs[0].numel() // width,), (THREADS,), "in0", "out0", {"i64": width})


def layer_norm(instance: Instance, outputs: list[torch.Tensor]) -> Step:
    """A block a row; the module's one LayerNorm has the parameters."""
    norms = [(name, part) for name, part in instance.module.named_modules() if isinstance(part, torch.nn.LayerNorm)]
    if len(norms) != 1:
        sys.exit("layer_norm wants a module with one torch.nn.LayerNorm")
    name, norm = norms[0]
    prefix = f"param:{name}." if name else "param:"
    width = prod(norm.normalized_shape)
    scale, shift, epsilon = f"{prefix}weight", f"{prefix}bias", {"f32": norm.eps}
    rows = outputs[0].numel() // width
    return step("layer_norm", (rows,), (THREADS,), "in0", scale, shift, "out0", {"i64": width}, epsilon)


def sum_(instance: Instance, outputs: list[torch.Tensor]) -> Step:
    """Over the one dimension that the result lacks or has as 1."""
    whole, left = list(instance.inputs[0].shape), list(outputs[0].shape)
    kept = len(whole) == len(left)
    axes = [
        n for n, size in enumerate(whole) if (whole[:n], whole[n + 1 :]) == _around(left, n, kept=kept) and size > 1
    ]
    if not axes:
        sys.exit("sum wants a problem that sums over one dimension")
    axis, inner, count = axes[0], prod(whole[axes[0] + 1 :]), outputs[0].numel()
    if inner == 1:
        return step("sum_last", (count,), (THREADS,), "in0", "out0", {"i64": whole[axis]})
    sizes = ({"i64": count}, {"i64": inner}, {"i32": whole[axis]})
    return step("sum_middle", (-(-count // THREADS),), (THREADS,), "in0", "out0", *sizes)


def _around(left: list[int], n: int, *, kept: bool) -> tuple[list[int], list[int]]:
    """The sizes of a result before and behind the dimension that was summed over."""
    return left[:n], left[n + 1 if kept and left[n : n + 1] == [1] else n :]


def matmul(instance: Instance, outputs: list[torch.Tensor]) -> Step:
    """Two row-major matrices."""
    (m, k), n = instance.inputs[0].shape, outputs[0].shape[-1]
    sizes = ({"i32": m}, {"i32": n}, {"i32": k})
    return step("matmul", (-(-n // 64), -(-m // 64)), (16, 16), "in0", "in1", "out0", *sizes)


KINDS: dict[str, Callable[[Instance, list[torch.Tensor]], Step]] = {
    "softmax": softmax, "layer_norm": layer_norm, "sum": sum_, "matmul": matmul,
}  # fmt: skip


def step(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], *args: Any) -> Step:
    """A launch."""
    three = [*grid, 1, 1][:3], [*block, 1, 1][:3]
    return {"kernel": kernel, "grid": three[0], "block": three[1], "args": list(args)}


def write(out: Path, problem: str, kind: str) -> Path:
    """The folder of the candidate."""
    instance, outputs = dry_run(load_problem(problem))
    folder = out / Path(problem).stem
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text((KERNELS / f"{kind}.cu").read_text())
    plan = {"schema_version": 1, "steps": [KINDS[kind](instance, outputs)]}
    (folder / "launch.json").write_text(json.dumps(plan, indent=1) + "\n")
    return folder


def main(words: list[str]) -> None:
    """Writes one folder a problem."""
    pairs = [word.rpartition("=")[::2] for word in words[1:]]
    if not pairs or any(kind not in KINDS or not problem for problem, kind in pairs):
        sys.exit(__doc__)
    for problem, kind in pairs:
        sys.stdout.write(f"{write(Path(words[0]), problem, kind)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
