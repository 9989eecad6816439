"""Whose references lie in a GPU's memory: one run's, or those of a few runs that share it by agreement."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Literal

from warpsmith.kernels.environment import positive_number

VARIABLE = "WARPSMITH_GPU_SEATS"
"""Environment variable: how many runs share the GPU, each with its part of the memory. `bench` sets it for its own."""
LANES = "WARPSMITH_GPU_LANES"
"""Environment variable: how many processes of a suite may have a context on the GPU, idle while one of them times."""
_STEP_S = 0.05
_AGAIN_S = 30.0
"""A suite takes a process for lost that says nothing for very long."""

Notify = Callable[[str, dict[str, Any]], None]
Place = Literal["seat", "large", "none"]


def seats() -> int | None:
    """How many runs of a suite share a GPU; None where a run has it to itself."""
    found = positive_number(VARIABLE, "give a whole number of at least 1, or unset it", least=1.0)
    return None if found is None else int(found)


def companions() -> int:
    """How many other processes on the GPU are no strangers."""
    found = positive_number(LANES, "give a whole number of at least 1, or unset it", least=1.0)
    return max(seats() or 1, int(found or 1)) - 1


class Lease:
    """A run's place on a GPU. The system gives it back when the process ends, however that happens."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._handles: list[int] = []

    async def take(self, notify: Notify | None, *, place: Place = "seat") -> None:
        """Waits for the device, saying so now and then. Runs that share it exclude those that want it whole, and wait
        for one of the seats; `none` for those that hold little, `large` for the one that holds more beside the
        seats."""
        from warpsmith.sandbox.cuda.lock import take

        count = seats()
        try:
            await self._first([("run", count is not None)], notify, take)
            if count is not None and place == "seat":
                await self._first([(f"seat{number}", False) for number in range(count)], notify, take)
            if count is not None and place == "large":
                await self._first([("large", False)], notify, take)
        except BaseException:
            self.give_back()
            raise

    async def _first(
        self, purposes: list[tuple[str, bool]], notify: Notify | None, take: Callable[..., int | None]
    ) -> None:
        """Waits for the first of these locks that nobody holds."""
        said = 0.0
        while True:
            for purpose, shared in purposes:
                handle = take(self._uuid, purpose=purpose, shared=shared)
                if handle is not None:
                    self._handles.append(handle)
                    return
            if notify is not None and (not said or (seats() is not None and time.monotonic() - said > _AGAIN_S)):
                notify("phase", {"text": "another run has the GPU; waiting for it to end"})
                said = time.monotonic()
            await asyncio.sleep(_STEP_S)

    def give_back(self) -> None:
        """Lets others in."""
        while self._handles:
            os.close(self._handles.pop())
