"""Workers that take turns: who was given back last comes first, and nobody starts before he is needed."""

from __future__ import annotations

import asyncio

from warpsmith.tools.target import Target
from warpsmith.tools.workers import Workers


def test_workers_start_as_they_are_needed() -> None:
    async def run() -> tuple[list[int | None], list[int | None]]:
        async with Workers(Target(kind="cpu", arch="sm_90"), jobs=3) as workers:
            alone = []
            for _ in range(2):
                async with workers.borrow() as worker:
                    alone.append(worker.pid)
            async with workers.borrow() as first, workers.borrow() as second:
                before = second.pid
                await second.start()
                side_by_side = [first.pid, before, second.pid]
            return alone, side_by_side

    alone, side_by_side = asyncio.run(run())
    assert alone[0] is not None
    assert alone == [side_by_side[0]] * 2
    assert side_by_side[1] is None
    assert side_by_side[2] not in (None, side_by_side[0])
