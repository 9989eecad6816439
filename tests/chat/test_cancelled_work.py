"""Work that is broken off leaves its worker usable at once."""

import asyncio
import contextlib

from warpsmith.sandbox.worker import Worker

SELF = "warpsmith.sandbox.selftest"


async def broken_off(worker: Worker) -> tuple[int | None, str]:
    """The runner's process id before, and what the next call answers."""
    long = asyncio.ensure_future(worker.call(f"{SELF}:sleep", 600, timeout_s=600))
    while worker.pid is None or not worker._busy.locked():
        await asyncio.sleep(0.01)
    before = worker.pid
    long.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await long
    return before, await worker.call(f"{SELF}:echo", "still there", timeout_s=60)


def test_a_call_that_is_cancelled_ends_its_process_and_the_next_call_has_another() -> None:
    async def run() -> None:
        async with Worker(preload=()) as worker:
            pids: list[int | None] = []
            for _ in range(8):
                before, answer = await broken_off(worker)
                assert answer == "still there"
                pids += [before]
                assert worker.pid != before
            assert len(set(pids)) == len(pids)

    asyncio.run(run())
