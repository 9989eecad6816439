"""Whose references lie in a GPU's memory: one run's, or those of a few runs that share it by agreement."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from warpsmith.kernels.environment import positive_number

VARIABLE = "WARPSMITH_GPU_SEATS"
"""Environment variable: into how many seats runs that share the GPU divide its memory. `bench` sets it for its own."""
TAKES = "WARPSMITH_GPU_TAKES"
"""Environment variable: how many of the seats a run takes; 1 where it is not set."""
LANES = "WARPSMITH_GPU_LANES"
"""Environment variable: how many processes of a suite may have a context on the GPU, idle while one of them times."""
_REMEDY = "give a whole number of at least 1, or unset it"
_STEP_S = 0.05
_AGAIN_S = 30.0
"""A suite takes a process for lost that says nothing for very long."""

Notify = Callable[[str, dict[str, Any]], None]


def seats() -> int | None:
    """How many seats a suite has on a GPU; None where a run has it to itself."""
    found = positive_number(VARIABLE, _REMEDY, least=1.0)
    return None if found is None else int(found)


def takes() -> int:
    """How many of the seats a run of this process takes."""
    return min(seats() or 1, int(positive_number(TAKES, _REMEDY, least=1.0) or 1))


def companions() -> int:
    """How many other processes on the GPU are no strangers."""
    found = positive_number(LANES, _REMEDY, least=1.0)
    return max(seats() or 1, int(found or 1)) - 1


class Lease:
    """A run's place on a GPU. The system gives it back when the process ends, however that happens."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._handles: list[int] = []

    async def take(self, notify: Notify | None) -> None:
        """Waits for the device, saying so now and then. Runs that share it exclude those that want it whole, and wait
        for as many seats as they take."""
        count, wanted = seats(), takes()
        try:
            self._handles.append(await self._first([("run", count is not None)], notify))
            if count is not None:
                # One at a time takes seats: two that each hold a part of what they need would wait for each other.
                queue = await self._first([("queue", False)], notify)
                try:
                    for _ in range(wanted):
                        found = await self._first([(f"seat{number}", False) for number in range(count)], notify)
                        self._handles.append(found)
                finally:
                    os.close(queue)
        except BaseException:
            self.give_back()
            raise

    async def _first(self, purposes: list[tuple[str, bool]], notify: Notify | None) -> int:
        """Waits for the first of these locks that nobody holds."""
        from warpsmith.sandbox.cuda.lock import take

        said = 0.0
        while True:
            for purpose, shared in purposes:
                handle = take(self._uuid, purpose=purpose, shared=shared)
                if handle is not None:
                    return handle
            if notify is not None and (not said or (seats() is not None and time.monotonic() - said > _AGAIN_S)):
                notify("phase", {"text": "another run has the GPU; waiting for it to end"})
                said = time.monotonic()
            await asyncio.sleep(_STEP_S)

    def give_back(self) -> None:
        """Lets others in."""
        while self._handles:
            os.close(self._handles.pop())
