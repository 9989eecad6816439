"""What a suite run meets at --resume: nothing that was finished is given up for what can be mended."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.slow_search import new_store

from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.command import opened
from warpsmith.app.suite.files import write_files
from warpsmith.app.suite.folder import SuiteFolder, read_manifest
from warpsmith.app.suite.order import todo
from warpsmith.app.suite.problems import find_problems
from warpsmith.app.suite.records import ProblemRow
from warpsmith.app.suite.resume import changed, digest
from warpsmith.app.suite.schedule import Schedule
from warpsmith.app.suite.scripted import ScriptedLane
from warpsmith.app.suite.settings import SuiteSettings, refuse_early
from warpsmith.app.suite.show import Watcher
from warpsmith.app.suite.wire import Job, Reply, SearchJob
from warpsmith.app.suite.words import summary_text
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Outcome


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite run of two problems with nothing done."""
    for name in ("1_One.py", "2_Two.py"):
        (tmp_path / "level1").mkdir(exist_ok=True)
        (tmp_path / "level1" / name).write_text("x = 1\n")
    settings = SuiteSettings(targets=(str(tmp_path / "level1"),), out=tmp_path / "runs", budget=10)
    folder, _ = opened(settings)
    folder.close()
    return folder.folder


def again(suite: Path, **more: Any) -> tuple[SuiteFolder, SuiteSettings]:
    return opened(SuiteSettings(resume=suite, given=frozenset(more), **more))


def searched(folder: SuiteFolder, lane: ScriptedLane, **more: Any) -> Schedule:
    settings = SuiteSettings(budget=4, **more)
    schedule = Schedule(folder, settings, [lane], Watcher(QuietDisplay(), 2), "", grace_s=0.1, reading_s=0.05)
    asyncio.run(schedule.run())
    return schedule


def begun(folder: SuiteFolder, key: str) -> Path:
    with new_store(folder.folder / "runs" / key) as store:
        store.append_outcome(Outcome(candidate="a" * 16, problem_hash="h", status="ok"))
        return store.folder


def test_missing_files_end_the_call_before_it_starts(suite: Path, tmp_path: Path) -> None:
    shutil.move(tmp_path / "level1", tmp_path / "moved")
    with pytest.raises(UserError, match=r"2 files of open problems cannot be found .*FOLDER --resume"):
        again(suite)
    shutil.move(tmp_path / "moved", tmp_path / "there" / "level1")
    folder, _ = again(suite, targets=(str(tmp_path / "there" / "level1"),))
    with folder:
        assert all("there" in problem.path for problem in folder.manifest().problems)


def test_limits_are_held_against_the_settings_of_the_run(suite: Path) -> None:
    folder, settings = again(suite, max_evaluations=30)
    folder.close()
    assert (settings.budget, settings.max_evaluations) == (10, 30)
    with pytest.raises(UserError, match="less than the 10 of one problem"):
        again(suite, max_evaluations=8)


def test_a_run_that_cannot_be_gone_on_with_leaves_its_problem_open(suite: Path) -> None:
    def stuck(job: Job) -> Reply:
        assert isinstance(job, SearchJob)
        return Reply(stuck="results.jsonl:3 is damaged") if job.resume else Reply(stopped=True)

    with SuiteFolder.open(suite) as folder:
        begun(folder, "L1-002_Two")
        schedule = searched(folder, ScriptedLane(stuck))
        assert (schedule.stuck, folder.rows) == (1, {})
        summary = write_files(suite, folder.manifest(), folder.rows, {})
        # What open problems have used is counted.
        assert (summary["open"], summary["evaluations"]) == (2, 1)


def test_retry_goes_on_with_the_run_that_is_there(suite: Path) -> None:
    lane = ScriptedLane()
    with SuiteFolder.open(suite) as folder:
        run = begun(folder, "L1-001_One")
        folder.append(ProblemRow(key="L1-001_One", status="refused", reason="no such file"))
        searched(folder, lane, retry=("refused",))
    first = lane.jobs[0]
    assert isinstance(first, SearchJob)
    assert (first.resume, first.budget) == (str(run.resolve()), 4)


def test_a_file_that_is_never_read_is_refused_and_what_was_cut_short_so_comes_last(suite: Path) -> None:
    with SuiteFolder.open(suite) as folder:
        searched(folder, ScriptedLane(hangs=True), problem_minutes=0.0005)
        assert {row.status for row in folder.rows.values()} == {"refused"}
        assert "--problem-minutes" in str(folder.rows["L1-001_One"].reason)
        folder.rows = {}
        folder.folder.joinpath("events.jsonl").write_text("")
        folder.event("started", key="L1-001_One")
        assert [one.key for one in todo(folder, folder.manifest(), ())] == ["L1-002_Two", "L1-001_One"]


def test_a_done_problem_whose_file_changed_is_told(suite: Path, tmp_path: Path) -> None:
    manifest = read_manifest(suite)
    rows = {"L1-001_One": ProblemRow(key="L1-001_One", status="verified")}
    assert list(changed(manifest, rows, ())) == []
    (tmp_path / "level1" / "1_One.py").write_text("x = 2\n")
    (told,) = changed(manifest, rows, ())
    assert told.startswith("L1-001_One: its file changed")
    assert digest(str(tmp_path / "level1" / "gone.py")) is None


def test_a_key_that_leads_out_of_the_folder_is_refused(suite: Path) -> None:
    document = json.loads((suite / "suite.json").read_text())
    for key in ("../../evil", "..", "/tmp/evil"):
        document["problems"][0]["key"] = key
        (suite / "suite.json").write_text(json.dumps(document))
        with pytest.raises(UserError, match=r"problems\.0\.key"):
            SuiteFolder.open(suite)


def test_retry_wants_a_suite_run() -> None:
    with pytest.raises(UserError, match="with --resume"):
        refuse_early(SuiteSettings(targets=("kb",), retry=("crashed",)))


def test_a_list_is_read_as_utf8_and_its_literals_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    names = tmp_path / "list.txt"
    names.write_bytes(b"\xef\xbb\xbfa.py\n")
    assert [one.key for one in find_problems([str(names)])] == ["a"]
    names.write_bytes(b"a\xff.py\n")
    with pytest.raises(UserError, match="is not UTF-8"):
        find_problems([str(names)])
    names.write_text("a.py\na.py,N=(\n")
    with pytest.raises(UserError, match=r"list\.txt:2: 'N=\('"):
        find_problems([str(names)])


def test_what_may_not_be_counted_is_neither_in_kernelbenchs_form_nor_untold(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "level1").mkdir(parents=True)
        (tmp_path / folder / "level1" / f"1_{folder}.py").write_text("")
    problems = find_problems([str(tmp_path / "a"), str(tmp_path / "b")])
    manifest = read_manifest(_written(tmp_path, problems))
    rows = {
        "L1-001_a": ProblemRow(key="L1-001_a", status="verified", payable=False, provenance="own"),
        "L1-001_b": ProblemRow(key="L1-001_b", status="verified", payable=True, provenance="own"),
    }
    summary = write_files(tmp_path, manifest, rows, {})
    samples = json.loads((tmp_path / "kernelbench" / "level1" / "eval_results.json").read_text())["1"]
    assert [(one["sample_id"], one["correctness"], one["metadata"]["payable"]) for one in samples] == [
        (0, False, False), (1, True, True),
    ]  # fmt: skip
    text = summary_text(summary | {"suite": "s", "device": "emulator:sm_90", "complete": True, "stop": None})
    assert "1 of the verified not payable" in text
    assert "share a level and number" in text


def _written(tmp_path: Path, problems: Any) -> Path:
    folder, _ = opened(SuiteSettings(targets=(str(tmp_path / "a"), str(tmp_path / "b")), out=tmp_path / "runs"))
    with folder:
        assert folder.manifest().problems == problems
    return folder.folder
