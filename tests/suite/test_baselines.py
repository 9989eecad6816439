"""Baselines of one problem: kept once measured, tried again where memory was short, open where a process failed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.problems import problem

from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.baselines import TimedFirst, measure
from warpsmith.app.suite.desk import Desk
from warpsmith.app.suite.problems import find_problems
from warpsmith.app.suite.wire import BaselineJob, Setup
from warpsmith.app.workbench import Bench
from warpsmith.kernels.errors import UserError, WorkerDied
from warpsmith.tools.measurement.baseline_jobs import Timed

MODES = ("eager", "compile")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("WARPSMITH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "p.py").write_text(problem())
    with Desk.open(Setup(device="cpu", arch=None, jobs=1)) as found:
        yield found


class Device:
    """Stands for the worker process of a GPU."""

    def __init__(self, **failures: str | Exception) -> None:
        self.failures = failures
        self.asked: list[tuple[str, list[str]]] = []

    async def __call__(self, bench: Bench, job: str, modes: list[str]) -> Any:
        self.asked.append((job, modes))
        for failure in self.failures.values():
            if isinstance(failure, Exception):
                raise failure
        if job == "compile_job":
            return self.failures
        timed = [
            Timed(mode=mode, failure=str(self.failures[mode]))
            if mode in self.failures
            else Timed(mode=mode, samples=(2.0, 2.0), eager=(4.0, 4.0))
            for mode in modes
        ]
        return [one.model_dump(mode="json") for one in timed]


def job(folder: Path, kind: Any, *, last: bool = False) -> BaselineJob:
    (found,) = find_problems([str(folder / "p.py")])
    return BaselineJob(kind=kind, problem=found, mode="eval", modes=MODES, folder=str(folder / "kept"), last=last)


def test_a_baseline_is_measured_once(desk: Desk, tmp_path: Path) -> None:
    device = Device()
    first = measure(job(tmp_path, "time"), desk, QuietDisplay(), device)
    assert {one.mode: one.samples for one in first.baselines} == dict.fromkeys(MODES, (2.0, 2.0))
    again = measure(job(tmp_path, "time"), desk, QuietDisplay(), device)
    assert again.baselines == first.baselines
    assert [asked[1] for asked in device.asked] == [list(MODES)]


def test_what_is_compiled_on_this_machine_is_not_compiled_again(desk: Desk, tmp_path: Path) -> None:
    device = Device(compile="no luck")
    measure(job(tmp_path, "compile"), desk, QuietDisplay(), device)
    device.failures = {}
    for _ in range(2):
        measure(job(tmp_path, "compile"), desk, QuietDisplay(), device)
    # Eager needs no compiler; what failed is tried again, what is done is done.
    assert device.asked == [("compile_job", ["compile"])] * 2


def test_want_of_memory_is_no_verdict_before_the_whole_device_was_tried(desk: Desk, tmp_path: Path) -> None:
    device = Device(compile="torch.compile failed: CUDA out of memory")
    first = measure(job(tmp_path, "time"), desk, QuietDisplay(), device)
    assert first.short_of_memory
    assert [one.mode for one in first.baselines] == ["eager"]
    last = measure(job(tmp_path, "time", last=True), desk, QuietDisplay(), device)
    assert not last.short_of_memory
    assert {one.mode: one.failure is None for one in last.baselines} == {"eager": True, "compile": False}
    assert device.asked[1] == ("time_job", ["compile"])


class Judge:
    """Stands for the evaluator of a search."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.asked: list[list[str]] = []

    async def time_baselines(self, modes: list[str], *, timeout_s: float) -> list[Timed]:
        self.asked.append(list(modes))
        if self.failure is not None:
            raise self.failure
        short = {"compile": "torch.compile failed: out of memory"}
        return [Timed(mode=mode, samples=(2.0,), eager=(4.0,), failure=short.get(mode)) for mode in modes]


def test_a_search_times_what_is_not_known_and_leaves_open_what_does_not_fit(desk: Desk, tmp_path: Path) -> None:
    bench = desk.bench(str(tmp_path / "p.py"), {}, "eval")

    def first(*, last: bool = False) -> TimedFirst:
        return TimedFirst(bench, MODES, tmp_path / "kept", last, QuietDisplay())

    def done(one: TimedFirst, judge: Judge) -> list[str]:
        asyncio.run(one(judge))  # type: ignore[arg-type]
        return [record.key.mode for record in one.records]

    assert done(first(), Judge(WorkerDied("gone"))) == []
    judge = Judge()
    assert done(first(), judge) == ["eager"]
    assert done(first(last=True), judge) == ["eager", "compile"]
    assert done(first(), judge) == ["eager", "compile"]
    assert judge.asked == [["eager", "compile"], ["compile"]]


@pytest.mark.parametrize(("error", "again"), [(WorkerDied("gone"), False), (UserError("too large"), True)])
def test_a_process_that_fails_leaves_its_modes_open(desk: Desk, tmp_path: Path, error: Exception, again: bool) -> None:
    found = measure(job(tmp_path, "time"), desk, QuietDisplay(), Device(any=error))
    assert found.baselines == ()
    assert found.short_of_memory == again
    assert (found.failure is None) == again
    assert len(measure(job(tmp_path, "time"), desk, QuietDisplay(), Device()).baselines) == 2
    (tmp_path / "p.py").write_text("broken(")
    assert measure(job(tmp_path, "time"), desk, QuietDisplay(), Device()).baselines == ()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"policy": "luck"}, "unknown policy 'luck'"),
        ({"policy": "chat:m@http://127.0.0.1:9/v1", "capped": True}, "--price"),
        ({"policy": "chat:m@http://127.0.0.1:9/v1", "price": ("x",)}, "price 'x'"),
    ],
)
def test_what_is_wrong_with_a_policy_is_told_once(more: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Desk.open(Setup(device="cpu", arch=None, jobs=1, **more))
