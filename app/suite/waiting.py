"""How long a lane's answer is waited for."""

from __future__ import annotations

import asyncio
import time

from warpsmith.app.suite.wire import Job, Reply, SearchJob, Told

READING = "reading"
"""The phase in which a problem's file is run: it may never return."""
LEAST_READING_S = 30.0
"""However few the minutes of a problem: the first one of a lane imports torch."""


class Hearing:
    """When a lane was last heard while it does a job, and whether it still reads the problem."""

    def __init__(self, job: Job, silence_s: float, least_s: float = LEAST_READING_S) -> None:
        self._silence_s = silence_s
        self._last = self._began = time.monotonic()
        self.reading = isinstance(job, SearchJob)
        self.reading_s = max(least_s, 60 * job.minutes) if isinstance(job, SearchJob) else 0.0

    def told(self, told: Told) -> None:
        """Something was heard."""
        self._last = time.monotonic()
        if told.kind != "phase" or told.data.get("text") != READING:
            self.reading = False

    def left_s(self) -> float:
        """Seconds until it is given up."""
        left = self._last + self._silence_s - time.monotonic()
        return min(left, self._began + self.reading_s - time.monotonic()) if self.reading else left

    def why(self) -> str:
        """Why it was given up."""
        if self.reading and self.reading_s < self._silence_s:
            return (
                f"the file was not read and traced within {self.reading_s:g} s (--problem-minutes); look for a loop or "
                "a download at its import"
            )
        return f"its process said nothing for {self._silence_s:g} s"


async def any_of(*events: asyncio.Event) -> None:
    """Until one of them is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


async def heard_out(asked: asyncio.Task[Reply], hearing: Hearing, stop: asyncio.Event, grace_s: float) -> bool:
    """Whether there is an answer: False after a silence, and a while after the wish to stop."""
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stopping.done():
            left = hearing.left_s()
            if left <= 0:
                return asked.done()
            await asyncio.wait((asked, stopping), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return True
        await asyncio.wait((asked,), timeout=grace_s)
        return asked.done()
    finally:
        stopping.cancel()
