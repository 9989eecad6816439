"""The Python API: `warpsmith.optimize(module, example_inputs)`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.workbench import bench_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.live import LOADING_MAIN
from warpsmith.kernels.problem import live_problem


def optimize(
    module: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    device: str = "auto",
    arch: str | None = None,
    policy: str = "builtin",
    budget: int = 64,
    verdicts: int = 4,
    minutes: float | None = None,
    seed: int = 0,
    out: Path | str = "runs",
) -> Finished:
    """Find the fastest verified kernels for a module or function of tensors.

    `example_inputs` give the shapes and dtypes; their values are never used alone, the judge draws its own. Returns the
    run folder, the best outcome (None where nothing was verified) and the counts. Raises UserError for input that
    cannot be optimised.
    """
    if LOADING_MAIN in os.environ:
        raise UserError("a worker loads this script again: guard the call with if __name__ == '__main__'")
    settings = OptimizeSettings(
        problem=getattr(module, "__name__", type(module).__name__), device=device, arch=arch, policy=policy,
        budget=budget, verdicts=verdicts, minutes=minutes, seed=seed, out=Path(out),
    )  # fmt: skip
    Path(out).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="module-", dir=out))
    problem = live_problem(module, example_inputs, folder=folder)
    return optimize_bench(bench_for(problem, device=device, arch=arch), settings, QuietDisplay())
