"""Thousands of candidates in a row: nothing grows with their number but what is kept of each on purpose."""

import asyncio
from pathlib import Path

import pytest
from support.scripts import benchmark

KEPT_KB = 8.0
"""Of a candidate, in any process: its outcome here; what allocators do not give back elsewhere."""
SLACK_MB = 24.0
"""Caches that fill up to their bounds, and pages that come and go."""


def points(count: int, batch: int, folder: Path) -> list:
    async def collect() -> list:
        return [point async for point in benchmark("endurance").soak(count, batch, folder)]

    return asyncio.run(collect())


def grown(found: list) -> list[str]:
    """What is larger after the last batch than after the first by more than is kept on purpose."""
    first, last = found[0], found[-1]
    allowed = SLACK_MB + (last.candidates - first.candidates) * KEPT_KB / 1024
    complaints = [
        f"{name}: {getattr(first, name)} -> {getattr(last, name)} MB"
        for name in ("own_mb", "nursery_mb", "runner_mb", "compilers_mb")
        if getattr(last, name) - getattr(first, name) > allowed
    ]
    for name in ("open_files", "processes", "temporary_files"):
        if getattr(last, name) > getattr(first, name):
            complaints.append(f"{name}: {getattr(first, name)} -> {getattr(last, name)}")
    return complaints


def judged_right(found: list) -> bool:
    """Whether every verdict of every batch was as expected."""
    counts = [point.candidates for point in found]
    return [point.right for point in found] == [b - a for a, b in zip([0, *counts], counts, strict=False)]


def test_three_hundred_candidates_in_a_row(tmp_path: Path) -> None:
    found = points(300, 60, tmp_path)
    assert judged_right(found)
    assert grown(found) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_ten_thousand_candidates_in_a_row(tmp_path: Path) -> None:
    found = points(10_000, 100, tmp_path)
    assert judged_right(found)
    # The first batches fill caches.
    assert grown(found[5:]) == []
