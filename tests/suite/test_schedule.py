"""The order of a suite's work, on lanes whose answers are functions: what is done once, again, or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.files import write_files
from warpsmith.app.suite.folder import SuiteFolder
from warpsmith.app.suite.records import ProblemRow, SuiteManifest, SuiteProblem
from warpsmith.app.suite.schedule import Schedule
from warpsmith.app.suite.scripted import ScriptedLane, died, verified
from warpsmith.app.suite.settings import SuiteSettings, as_before
from warpsmith.app.suite.show import Watcher
from warpsmith.app.suite.wire import BaselineJob, Job, Reply, SearchJob
from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.kernels.records import SCHEMA_VERSION, Outcome
from warpsmith.tools.measurement.baseline_records import ALWAYS, BaselineKey, BaselineRecord
from warpsmith.tools.runs.store import RunStore

GPU = "gpu:Scripted"


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    found = SuiteFolder.create("test", tmp_path)
    problems = tuple(SuiteProblem(key=key, path=f"/{key}.py", name=key) for key in "abc")
    found.write_manifest(SuiteManifest(suite_id="test", created="", config={}, problems=problems, autotuned=("b",)))
    return found


def run(
    folder: SuiteFolder, lanes: Sequence[ScriptedLane], *, stop_after: float | None = None, **more: Any
) -> Schedule:
    """A schedule that has run on these lanes."""
    settings = SuiteSettings(budget=4, **more)
    schedule = Schedule(folder, settings, lanes, Watcher(QuietDisplay(), 3), "", grace_s=0.2)

    async def go() -> None:
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, schedule.ask_to_stop, "interrupted")
        await schedule.run()

    asyncio.run(go())
    return schedule


def reopened(folder: SuiteFolder) -> SuiteFolder:
    """As after a kill: whatever the process knew is gone."""
    folder.close()
    return SuiteFolder.open(folder.folder)


def searched(*lanes: ScriptedLane) -> list[str]:
    return [job.problem.key for lane in lanes for job in lane.jobs if isinstance(job, SearchJob)]


def test_every_problem_is_searched_once_by_whichever_lane_is_free(folder: SuiteFolder) -> None:
    lanes = [ScriptedLane(), ScriptedLane()]
    assert run(folder, lanes).stop is None
    assert sorted(searched(*lanes)) == ["a", "b", "c"]
    assert all(lane.jobs for lane in lanes)
    assert {key: row.status for key, row in folder.rows.items()} == dict.fromkeys("abc", "verified")
    again = [ScriptedLane()]
    run(reopened(folder), again)
    assert searched(*again) == []
    assert again[0].starts == 0


def test_what_a_kill_cut_short_is_gone_on_with(folder: SuiteFolder) -> None:
    begun = begun_run(folder, "b", outcomes=3)
    folder.append(ProblemRow(key="a", status="not_planned", reason="not yet"))
    with (folder.folder / "results.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "key": "c", "sta')
    folder = reopened(folder)
    lane = ScriptedLane()
    run(folder, [lane])
    jobs = [job for job in lane.jobs if isinstance(job, SearchJob)]
    # The one that was begun comes first, with its run; a torn row counts for nothing, a whole one for done.
    assert [job.problem.key for job in jobs] == ["b", "c"]
    assert [job.resume for job in jobs] == [str(begun), None]
    assert folder.rows["a"].status == "not_planned"
    assert len(folder.rows) == 3


def test_ends_can_be_taken_up_again(folder: SuiteFolder) -> None:
    for key, status in {"a": "not_planned", "b": "verified", "c": "crashed"}.items():
        folder.append(ProblemRow(key=key, status=status, screened=2))  # type: ignore[arg-type]
    lane = ScriptedLane()
    run(folder, [lane], retry=("not_planned", "crashed"))
    assert searched(lane) == ["a", "c"]
    assert [row.status for row in reopened(folder).rows.values()] == ["verified"] * 3


def test_a_lane_that_dies_is_replaced_and_its_problem_tried_once_more(folder: SuiteFolder) -> None:
    deaths = iter((True, False, True, True))

    def script(job: Job) -> Reply | Exception:
        return died(job) if job.problem.key in "ab" and next(deaths) else verified(job)

    lane = ScriptedLane(script)
    run(folder, [lane])
    assert searched(lane) == ["a", "a", "b", "b", "c"]
    assert lane.starts == 4
    assert {key: row.status for key, row in folder.rows.items()} == {"a": "verified", "b": "crashed", "c": "verified"}
    assert "SIGSEGV" in (folder.rows["b"].reason or "")


def test_a_machine_that_gives_out_ends_the_suite_and_counts_against_no_problem(folder: SuiteFolder) -> None:
    def script(job: Job) -> Reply:
        return Reply(machine="no room left") if job.problem.key == "b" else verified(job)

    with pytest.raises(EnvironmentError_, match=r"no room left.*--resume"):
        run(folder, [ScriptedLane(script)])
    assert list(folder.rows) == ["a"]


def test_problems_that_crash_one_after_another_are_the_machine_s_fault(tmp_path: Path) -> None:
    folder = SuiteFolder.create("lost", tmp_path)
    problems = tuple(SuiteProblem(key=key, path=f"/{key}.py", name=key) for key in "abcdefgh")
    folder.write_manifest(SuiteManifest(suite_id="lost", created="", config={}, problems=problems))
    lost = ScriptedLane(lambda job: verified(job) if job.problem.key == "b" else died(job))
    with pytest.raises(EnvironmentError_, match=r"4 problems in a row crashed.*--retry crashed"):
        run(folder, [lost])
    assert [row.status for row in folder.rows.values()] == ["crashed", "verified", *["crashed"] * 4]
    run(folder, [ScriptedLane()], retry=("crashed",))
    assert [row.status for row in folder.rows.values()] == ["verified"] * 8


def test_a_stop_leaves_no_row_and_lanes_that_do_not_hear_it_are_ended(folder: SuiteFolder) -> None:
    class Deaf(ScriptedLane):
        def drain(self) -> None:
            """Goes on."""

    # What was begun and has no run yet comes last the next time.
    for key, lane in ("a", ScriptedLane(hangs=True)), ("b", Deaf(hangs=True)):
        schedule = run(folder, [lane], stop_after=0.05)
        assert schedule.stop == "interrupted"
        assert searched(lane) == [key]
        assert folder.rows == {}


def test_minutes_end_a_call_and_not_the_suite(folder: SuiteFolder) -> None:
    schedule = run(folder, [ScriptedLane(hangs=True)], minutes=0.001)
    assert schedule.stop == "minutes"
    assert folder.rows == {}
    run(folder, [ScriptedLane()])
    assert len(folder.rows) == 3


def test_evaluations_of_the_whole_suite_are_counted_over_all_calls(folder: SuiteFolder) -> None:
    begun_run(folder, "a", outcomes=3)
    lanes = [ScriptedLane(), ScriptedLane()]
    schedule = run(folder, lanes, max_evaluations=9)
    budgets = {job.problem.key: job.budget for lane in lanes for job in lane.jobs if isinstance(job, SearchJob)}
    # Three were spent on `a` before, whose budget is four in all; after one more there and four on `b`, one is left,
    # which is no whole budget for `c`.
    assert budgets == {"a": 4, "b": 4}
    assert schedule.stop == "evaluations"
    assert sorted(folder.rows) == ["a", "b"]
    assert run(reopened(folder), lanes[:1], max_evaluations=12).stop is None


def test_a_lane_waits_for_what_others_may_give_back(folder: SuiteFolder) -> None:
    def frugal(job: Job) -> Reply:
        assert isinstance(job, SearchJob)
        reply = verified(job)
        assert reply.row is not None
        return reply.model_copy(update={"row": reply.row.model_copy(update={"screened": 1})})

    # Four are set aside for each problem and one is used: six are enough for one at a time, and for all three.
    assert run(folder, [ScriptedLane(frugal), ScriptedLane(frugal)], max_evaluations=6).stop is None
    assert len(folder.rows) == 3


def test_money_is_shared_among_the_problems_to_come(folder: SuiteFolder) -> None:
    costs = iter((0.1, 0.4, 0.4))

    def script(job: Job) -> Reply:
        return verified(job).model_copy(update={"cost_usd": next(costs)})

    lane = ScriptedLane(script)
    run(folder, [lane], max_cost=0.9)
    caps = [job.max_cost for job in lane.jobs if isinstance(job, SearchJob)]
    assert caps == pytest.approx([0.3, 0.4, 0.4])
    lane = ScriptedLane(script)
    again = SuiteFolder.create("other", folder.folder.parent)
    again.write_manifest(folder.manifest())
    costs = iter((0.3, 0.2))
    assert run(again, [lane], max_cost=0.9, problem_max_cost=0.5).stop == "cost"
    assert [job.max_cost for job in lane.jobs if isinstance(job, SearchJob)] == pytest.approx([0.5, 0.5])


def test_a_search_measures_its_baselines_and_what_takes_long_comes_last(folder: SuiteFolder) -> None:
    lanes = [ScriptedLane(baselines, device=GPU), ScriptedLane(baselines, device=GPU)]
    run(folder, lanes)
    for lane in lanes:
        usual = [job for job in lane.jobs if not isinstance(job, BaselineJob) or job.modes == ALWAYS]
        assert [(job.kind, getattr(job, "untimed", ())) for job in usual] == [("search", ALWAYS)] * len(usual)
    tuned = [job for lane in lanes for job in lane.jobs if isinstance(job, BaselineJob) and job.modes != ALWAYS]
    # max-autotune is measured on the sample, after the searches.
    assert [(job.kind, job.problem.key) for job in tuned] == [("compile", "b"), ("time", "b")]
    folder = reopened(folder)
    assert len(folder.baselines) == 10
    lane = ScriptedLane(baselines, device=GPU)
    run(folder, [lane])
    assert lane.jobs == []


def test_a_problem_that_wants_the_whole_memory_is_timed_alone_at_the_end(folder: SuiteFolder) -> None:
    def script(job: Job) -> Reply:
        if isinstance(job, BaselineJob) and job.kind == "time" and job.problem.key == "a" and not job.last:
            return Reply(short_of_memory=True)
        return baselines(job)

    lane = ScriptedLane(script, device=GPU)
    run(folder, [lane], baselines_only=True)
    timed = [(job.problem.key, job.last) for job in lane.jobs if isinstance(job, BaselineJob) and job.kind == "time"]
    assert timed == [("a", False), ("b", False), ("c", False), ("a", True), ("b", False)]
    assert searched(lane) == []


def test_a_problem_that_wants_the_whole_memory_is_searched_alone_at_the_end(folder: SuiteFolder) -> None:
    def script(job: Job) -> Reply:
        if job.problem.key == "a" and job.kind == "search" and not job.last:  # type: ignore[union-attr]
            return Reply(short_of_memory=True)
        return baselines(job)

    lane = ScriptedLane(script, device=GPU)
    run(folder, [lane])
    tried = [(job.kind, job.last) for job in lane.jobs if job.problem.key == "a"]
    assert tried == [("search", False), ("search", True)]
    assert {row.status for row in folder.rows.values()} == {"verified"}
    assert searched(lane) == ["a", "b", "c", "a"]


def test_baselines_are_times_of_a_gpu(folder: SuiteFolder) -> None:
    with pytest.raises(EnvironmentError_, match="times of a GPU"):
        run(folder, [ScriptedLane()], baselines_only=True)


def test_devices_are_not_mixed(folder: SuiteFolder) -> None:
    with pytest.raises(UserError, match="several kinds"):
        run(folder, [ScriptedLane(device="gpu:A"), ScriptedLane(device="gpu:B")])
    run(folder, [ScriptedLane(lambda job: Reply(stopped=True), device="scripted:cpu")])
    with pytest.raises(UserError, match="was made on scripted:cpu"):
        run(folder, [ScriptedLane(device="gpu:A")])


def test_a_suite_run_keeps_its_settings(tmp_path: Path) -> None:
    config = SuiteSettings(targets=("x",), budget=9, minutes=3.0, max_cost=2.0).config()
    kept = as_before(SuiteSettings(max_evaluations=5, given=frozenset({"max_evaluations"})), config, tmp_path / "s")
    assert (kept.targets, kept.budget, kept.max_cost, kept.max_evaluations) == (("x",), 9, 2.0, 5)
    assert kept.minutes is None
    with pytest.raises(UserError, match="--budget 3 is given, the run has 9"):
        as_before(SuiteSettings(budget=3, given=frozenset({"budget"})), config, tmp_path)


def test_one_process_writes_a_suite_at_a_time(folder: SuiteFolder) -> None:
    with pytest.raises(UserError, match="being written by another process"):
        SuiteFolder.open(folder.folder)
    folder.close()
    (folder.folder / "results.jsonl").write_text('{"key": 3}\n')
    with pytest.raises(UserError, match=r"results\.jsonl:1 is no row"):
        SuiteFolder.open(folder.folder)
    with pytest.raises(UserError, match="is no suite run"):
        SuiteFolder.open(folder.folder.parent)


def test_results_can_be_written_at_every_moment(folder: SuiteFolder) -> None:
    text = "node mul_{n} (mul at /{key}.py:{n}): not yet; write it by hand"
    for n, key in enumerate("bc"):
        folder.append(ProblemRow(key=key, status="not_planned", reason=text.format(key=key, n=n)))
    summary = write_files(folder.folder, folder.manifest(), folder.rows, folder.baselines)
    assert (summary["problems"], summary["ended"], summary["open"]) == (3, 2, 1)
    told = "node mul (mul at the file): not yet"
    assert summary["reasons"] == [{"status": "not_planned", "reason": told, "problems": ["b", "c"]}]


def test_damaged_run_folders_are_counted_together(folder: SuiteFolder) -> None:
    for key in "bc":
        reason = f"/home/some/suite/runs/{key}/20260101T000000Z-{key}-12ab is not a whole run folder: it lacks blobs"
        folder.append(ProblemRow(key=key, status="refused", reason=reason))
    summary = write_files(folder.folder, folder.manifest(), folder.rows, folder.baselines)
    told = "its run folder is not a whole run folder: it lacks blobs"
    assert summary["reasons"] == [{"status": "refused", "reason": told, "problems": ["b", "c"]}]


def baselines(job: Job) -> Reply:
    """Every mode takes a microsecond."""
    if job.kind == "compile":
        return Reply()
    if isinstance(job, SearchJob):
        return verified(job).model_copy(update={"baselines": _microseconds(job, job.untimed)})
    return Reply(baselines=_microseconds(job, job.modes))


def _microseconds(job: Job, modes: tuple[str, ...]) -> tuple[BaselineRecord, ...]:
    key: Callable[[str], BaselineKey] = lambda mode: BaselineKey(  # noqa: E731
        problem_hash=job.problem.key, device=GPU, driver="1", torch="2", mode=mode
    )
    return tuple(BaselineRecord(key=key(m), at="", samples=(1.0,), eager=(1.0,)) for m in modes)


def begun_run(folder: SuiteFolder, key: str, *, outcomes: int) -> Path:
    """A run folder as a killed search leaves it."""
    problem = next(one for one in folder.manifest().problems if one.key == key)
    with RunStore.create(key, folder.home(problem)) as store:
        (store.folder / "manifest.json").write_text(
            f'{{"schema_version": {SCHEMA_VERSION}, "run_id": "r", "created": "", "config": {{}}, "versions": {{}}, '
            '"commit": null, "device": "d", "arch": "sm_90", "seed": 0, "problem_hash": "h", "problem_path": "p"}'
        )
        for number in range(outcomes):
            store.append_outcome(Outcome(candidate=f"{number:016x}", problem_hash="h", status="wrong"), "screen")
        return store.folder.resolve()
