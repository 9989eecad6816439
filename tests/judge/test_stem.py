"""Nurseries that are forks of a stem: as those that were started, but for the imports."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import alive, command, descendants, wait_until

from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.sandbox.worker import Worker

SELF = "warpsmith.sandbox.selftest"
MODULES = ("warpsmith.sandbox.selftest",)


def stems() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if command(pid).split()[-1:] == ["stem"]}


def top_stems() -> set[int]:
    """Forks keep the command line of what they are forks of."""
    found = stems()
    return {pid for pid in found if not any(pid in descendants(other) for other in found)}


def test_workers_one_after_another_are_forks_of_one_process_and_know_nothing_of_each_other() -> None:
    async def count() -> tuple[int, int, dict[str, str]]:
        async with Worker(preload=MODULES, environment={"WARPSMITH_TRIED": "1"}) as worker:
            assert worker.pid is not None
            assert worker.isolation is not None
            numbers = [await worker.call(f"{SELF}:count", None, timeout_s=30) for _ in range(2)]
            return worker.pid, numbers[-1], worker.isolation.layers

    first = asyncio.run(count())
    kept = top_stems()
    second = asyncio.run(count())
    assert kept
    assert top_stems() == kept
    assert first[1] == second[1] == 2
    assert first[2].keys() == second[2].keys()
    assert wait_until(lambda: not alive(first[0]) and not alive(second[0]), 60)


def test_a_fork_has_the_environment_and_the_isolation_of_its_own_start() -> None:
    async def told(value: str) -> list[str]:
        async with Worker(preload=MODULES, environment={"WARPSMITH_TRIED": value, f"WARPSMITH_{value}": "x"}) as worker:
            return list(await worker.call(f"{SELF}:environment", None, timeout_s=30))

    first, second = asyncio.run(told("ONE")), asyncio.run(told("TWO"))
    assert "WARPSMITH_ONE" in first
    assert "WARPSMITH_ONE" not in second
    assert "WARPSMITH_TWO" in second


def test_a_module_that_is_missing_is_told_by_a_fork_too() -> None:
    async def body() -> None:
        async with Worker(preload=("no_such_module_there",)):
            pass

    with pytest.raises(EnvironmentError_, match="no_such_module_there"):
        asyncio.run(body())


def test_a_killed_stem_takes_its_workers_along_and_the_next_one_is_a_new_process() -> None:
    async def body() -> tuple[object, object]:
        async with Worker(preload=MODULES) as worker:
            before = top_stems()
            first = await worker.call(f"{SELF}:echo", 1, timeout_s=30)
            runner = worker.pid
            assert runner is not None
            (mine,) = [pid for pid in before if runner in descendants(pid)]
            os.kill(mine, 9)
            assert wait_until(lambda: not alive(runner), 60)
        async with Worker(preload=MODULES) as worker:
            return first, await worker.call(f"{SELF}:echo", 2, timeout_s=60)

    assert asyncio.run(body()) == (1, 2)


def test_forks_die_with_a_killed_host(tmp_path: Path) -> None:
    script = f"""
import asyncio
from warpsmith.sandbox.stem import imports_kept
from warpsmith.sandbox.worker import Worker
async def body():
    async with Worker(preload={MODULES!r}) as worker:
        await worker.call("{SELF}:echo", 1, timeout_s=60)
        print(worker.pid, flush=True)
        await worker.call("{SELF}:sleep", 600, timeout_s=600)
with imports_kept():
    asyncio.run(body())
"""
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tmp_path)
    with host:
        assert host.stdout is not None
        runner = int(host.stdout.readline())
        below = [runner, *descendants(host.pid)]
        assert all(alive(pid) for pid in below)
        host.kill()
        host.wait()
    assert wait_until(lambda: not any(alive(pid) for pid in below), 60)
