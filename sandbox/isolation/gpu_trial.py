"""Job by which `doctor` and the tests run a kernel on the GPU from inside a runner's layers."""

from __future__ import annotations

from typing import Any

import torch

from warpsmith.kernels.records import CompileReport, LaunchPlan


def launch(payload: dict[str, Any]) -> list[float]:
    """Loads the compiled `report`, launches its `plan`, and gives the `count` numbers that it wrote to `out0`."""
    from warpsmith.sandbox.cuda.backend import CudaBackend

    backend = CudaBackend(0)
    out = torch.zeros(payload["count"], device=backend.torch_device)
    plan = LaunchPlan.model_validate(payload["plan"])
    loaded = backend.load(CompileReport.model_validate(payload["report"]), plan)
    result = loaded.launch({"out0": out}, poison=0xFF)
    if result.failure is not None:
        raise RuntimeError(f"{result.failure.kind}: {result.failure.message}")
    values: list[float] = out.cpu().tolist()
    return values
