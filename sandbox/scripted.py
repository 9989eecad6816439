"""A backend whose kernels are Python functions on tensors: the judge is tried against it without a
device."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from warpsmith.kernels.records import CompileReport, Failure, KernelStep, LaunchPlan
from warpsmith.sandbox.backend import Argument, LaunchResult

ScriptedKernel = Callable[..., object]


class ScriptedBackend:
    """Runs plans whose kernel names are keys of `kernels`; each gets the step's arguments in order."""

    label = "scripted:cpu"

    def __init__(self, kernels: Mapping[str, ScriptedKernel]) -> None:
        self.kernels = dict(kernels)
        self.torch_device = torch.device("cpu")
        self.launches = 0

    def forget(self) -> None:
        """Nothing of earlier work can be found from Python."""

    def load(self, report: CompileReport, plan: LaunchPlan) -> ScriptedLoaded:
        """Nothing to load: the plan is enough."""
        del report
        return ScriptedLoaded(self, plan)


class ScriptedLoaded:
    """A plan with its scratch buffers."""

    def __init__(self, backend: ScriptedBackend, plan: LaunchPlan) -> None:
        self.backend = backend
        self.plan = plan

    def release(self) -> None:
        """Scratch lives no longer than a launch."""

    def launch(self, arguments: Mapping[str, Argument], *, poison: int, again: bool = False) -> LaunchResult:
        """Runs prepare steps and steps. An exception of a kernel is a launch failure, as a crash would
        be."""
        self.backend.launches += 1
        values: dict[str, Any] = dict(arguments)
        for name, buffer in self.plan.buffers.items():
            scratch = torch.empty(buffer.shape, dtype=getattr(torch, buffer.dtype))
            scratch.view(-1).view(torch.uint8).fill_(0 if buffer.init == "zero" else poison)
            values[name] = scratch
        for step in (*self.plan.prepare, *self.plan.steps):
            if not isinstance(step, KernelStep):
                return LaunchResult(refused=f"library step {step.library}")
            given = [values[a] if isinstance(a, str) else next(iter(a.values())) for a in step.args]
            try:
                self.backend.kernels[step.kernel](*given)
            except Exception as error:
                message = f"{step.kernel}: {error}"
                return LaunchResult(failure=Failure(stage="launch", kind="illegal_address", message=message))
        return LaunchResult()


def sample_backend() -> ScriptedBackend:
    """Kernels for trying an evaluator: a right row softmax, and one for each way of failing."""

    def softmax(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.softmax(x, 1))

    def wrong(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.softmax(x * 1.01, 1))

    def wild(x: torch.Tensor, out: torch.Tensor) -> None:
        raise IndexError("an address outside of every buffer")

    def crash(x: torch.Tensor, out: torch.Tensor) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def hang(x: torch.Tensor, out: torch.Tensor) -> None:
        time.sleep(3600)

    return ScriptedBackend({"softmax": softmax, "wrong": wrong, "wild": wild, "crash": crash, "hang": hang})
