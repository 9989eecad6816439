"""The worker processes of one run: what they import, which device they see, whose turn it is on a GPU."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from warpsmith.sandbox.isolation.policy import Policy
from warpsmith.sandbox.isolation.profile import Isolation
from warpsmith.sandbox.nursery import Nursery
from warpsmith.sandbox.process import NICE
from warpsmith.sandbox.worker import Worker
from warpsmith.tools.lease import Lease
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target

COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
"""Environment variable: how many processes torch.compile uses."""
Notify = Callable[[str, dict[str, Any]], None]


class Workers:
    """Workers that jobs borrow in turn. Use as an async context manager."""

    def __init__(
        self, target: Target, *, jobs: int = 1, notify: Notify | None = None, policy: Policy | None = None,
        nice: int = 0,
    ) -> None:  # fmt: skip
        """`jobs` emulator processes work side by side; a GPU has one. `policy` says what they may touch, `nice` by how
        much others come before them."""
        self.target = target
        self._notify = notify
        # Imports are made once: workers are forks of one process.
        self._nursery = Nursery(
            preload=preload_modules(target), environment=worker_environment(target) | {NICE: str(nice)},
            policy=policy or runner_policy(target),
        )  # fmt: skip
        self._jobs = 1 if target.kind == "gpu" else max(1, jobs)
        self._free: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        """The one that was given back last comes first: it holds the module and its references already."""
        self._all: list[Worker] = []
        self._lease: Lease | None = None
        """References fill a card's memory, so runs take turns on it."""
        self.waited_s = 0.0
        """For the turn."""

    async def __aenter__(self) -> Self:
        for _ in range(self._jobs):
            worker = Worker(nursery=self._nursery)
            self._all.append(worker)
        for worker in reversed(self._all):
            await self._free.put(worker)
        # The others start when all before them are busy at once, which in many runs is never.
        await self._all[0].start()
        if self.target.kind == "gpu" and self.target.backend is None:
            from warpsmith.sandbox.cuda.facts import identity

            self._lease = Lease(identity(self.target.index).uuid)
            began = time.monotonic()
            await self._lease.take(self._notify)
            self.waited_s = time.monotonic() - began
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._all:
            worker.close()
        self._all.clear()
        self._nursery.close()
        if self._lease is not None:
            self._lease.give_back()
            self._lease = None

    def spent(self) -> dict[str, list[float]]:
        """Seconds of the calls so far by function."""
        found: dict[str, list[float]] = {}
        for worker in self._all:
            for name, seconds in worker.spent.items():
                found.setdefault(name, []).extend(seconds)
        return found

    @property
    def isolation(self) -> Isolation | None:
        """Profile and layers of the processes; None before they have started."""
        return self._all[0].isolation if self._all else None

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncIterator[Worker]:
        """The next free worker, for as long as the block runs."""
        worker = await self._free.get()
        worker.renew()
        try:
            yield worker
        finally:
            self._free.put_nowait(worker)


def preload_modules(target: Target) -> tuple[str, ...]:
    """What the nursery imports before it forks. None of it may initialise CUDA."""
    # torch's seeding enters its compiler: imported by a runner it would cost seconds in each, and keep the frames that
    # were on the stack, with gigabytes of inputs in them.
    common, compiler = ("torch", "warpsmith.tools.verification.verify"), "?torch._dynamo"
    if target.kind != "gpu":
        return (*common, compiler, "warpsmith.sandbox.emulator.backend")
    # The rest of the compiler starts CUDA when it is imported, which no
    # fork survives (torch 2.11: cuInit fails in the runner).
    return (*common, "?cupy", compiler, "warpsmith.tools.measurement.timing")


def worker_environment(target: Target) -> dict[str, str]:
    """Threads and devices of a worker: emulator processes work side by side, so each gets one thread."""
    if target.kind == "gpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        device = visible[target.index] if target.index < len(visible) and visible[0] else str(target.index)
        return {"CUDA_VISIBLE_DEVICES": device, "CUDA_MODULE_LOADING": "LAZY"}
    return {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
