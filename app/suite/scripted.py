"""A lane whose answers are a function: schedules are tried on it without processes and devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from warpsmith.app.suite.lanes import LaneDied, Tell
from warpsmith.app.suite.records import ProblemRow
from warpsmith.app.suite.wire import BaselineJob, Job, Ready, Reply, SearchJob

Script = Callable[[Job], Reply | Exception]


class ScriptedLane:
    """Answers each job by its script; an exception in its place is raised. Without a script every search verifies."""

    def __init__(self, script: Script | None = None, *, device: str = "scripted:cpu", hangs: bool = False) -> None:
        """`hangs`: no job ends before the lane is drained."""
        self.gpu: int | None = None
        self.jobs: list[Job] = []
        self.starts = 0
        self._script = script or verified
        self._device = device
        self._hangs = hangs
        self._draining = asyncio.Event()

    async def start(self) -> Ready:
        """Always there."""
        self.starts += 1
        return Ready(device=self._device, driver=None, versions={})

    async def do(self, job: Job, tell: Tell) -> Reply:
        """The script's answer."""
        self.jobs.append(job)
        if self._hangs:
            await self._draining.wait()
            return Reply(stopped=True)
        await asyncio.sleep(0)
        answer = self._script(job)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def drain(self) -> None:
        """Jobs that hang come to an end."""
        self._draining.set()

    def kill(self) -> None:
        """Nothing to end."""


def verified(job: Job) -> Reply:
    """Every evaluation was used and something was verified; baselines are left unmeasured."""
    if isinstance(job, BaselineJob):
        return Reply()
    row = ProblemRow(
        key=job.problem.key, status="verified", provenance="own", precision_class="exact", screened=job.budget,
        full_verdicts=1, verified_on="scripted:cpu", payable=True,
    )  # fmt: skip
    return Reply(row=row, screened=job.budget)


def died(job: Job) -> LaneDied:
    """The process is gone."""
    what = "search" if isinstance(job, SearchJob) else job.kind
    return LaneDied(f"ended by SIGSEGV in {what}")
