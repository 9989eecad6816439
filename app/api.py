"""The Python API: `warpsmith.optimize(module, example_inputs)`."""

from __future__ import annotations

import os
import re
import shutil
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
from warpsmith.tools.runs.store import room_needed


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
    name = getattr(module, "__name__", type(module).__name__)
    settings = OptimizeSettings(
        problem=name, device=device, arch=arch, policy=policy,
        budget=budget, verdicts=verdicts, minutes=minutes, seed=seed, out=Path(out),
    )  # fmt: skip
    home = Path(out) / ".modules"
    with room_needed(home):
        home.mkdir(parents=True, exist_ok=True)
        # The folder's own name becomes the run's name.
        folder = Path(tempfile.mkdtemp(dir=home)) / re.sub(r"\W+", "-", name)
    try:
        problem = live_problem(module, example_inputs, folder=folder)
    except UserError:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    try:
        return optimize_bench(bench_for(problem, device=device, arch=arch), settings, QuietDisplay())
    except Exception:
        if not _named_by_a_run(folder, Path(out)):
            shutil.rmtree(folder.parent, ignore_errors=True)
        raise


def _named_by_a_run(folder: Path, out: Path) -> bool:
    """Whether a run needs the module that was kept there."""
    return any(folder.parent.name in manifest.read_text() for manifest in out.glob("*/manifest.json"))
