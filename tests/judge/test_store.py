"""The run folder: nothing lost by kills, torn lines, foreign folders, two writers or a full disk."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan, Outcome, Quantiles, RunManifest
from warpsmith.tools.runs.store import RunStore

PLAN = LaunchPlan(steps=(KernelStep(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0")),))


def candidate(text: str) -> Candidate:
    return Candidate(source=text, plan=PLAN, values={"block": 32})


def outcome(of: Candidate, status="ok", time=None, estimate=None) -> Outcome:
    times = Quantiles(p10=time, p50=time, p90=time, n=10) if time else None
    return Outcome(candidate=of.id, problem_hash="h", status=status, time_us=times, estimated_us=estimate)


def created(tmp_path) -> RunStore:
    store = RunStore.create("soft max/../x", tmp_path)
    store.write_manifest(
        RunManifest(
            run_id=store.run_id,
            created="2026-01-01T00:00:00Z",
            config={},
            versions={},
            commit=None,
            device="cpu",
            arch="sm_90",
            seed=0,
            problem_hash="h",
            problem_path="p.py",
        )
    )
    return store


def test_round_trip_and_what_answers_which_level(tmp_path):
    first, second = candidate("a"), candidate("b")
    with created(tmp_path) as store:
        assert store.folder.parent == tmp_path
        assert store.put_candidate(first) == first.id
        digest = store.put_blob(b"log")
        store.append_outcome(outcome(first, "screened", estimate=5.0), "screen")
        store.append_outcome(outcome(second, "infrastructure_error"))
        store.event("round", n=1)
        assert store.outcome(first.id, "full") is None
        assert store.outcome(second.id, "screen") is None
        store.append_outcome(outcome(first, "ok", estimate=5.0))
        with pytest.raises(ValueError, match="screened"):
            store.append_outcome(outcome(first, "screened"), "full")
    with RunStore.open(store.folder) as again:
        assert again.get_candidate(first.id) == first
        assert again.get_blob(digest) == b"log"
        assert again.outcome(first.id, "full").status == "ok"
        assert [o.status for o in again.outcomes()] == ["ok", "infrastructure_error"]
        assert [event.data for event in again.events()] == [{"n": 1}]


def test_best_prefers_what_was_measured(tmp_path):
    slow, fast, guess = candidate("slow"), candidate("fast"), candidate("guess")
    with created(tmp_path) as store:
        assert store.best() is None
        store.append_outcome(outcome(guess, estimate=1.0))
        assert store.best().candidate == guess.id
        store.append_outcome(outcome(slow, time=20.0))
        store.append_outcome(outcome(fast, time=10.0))
        store.append_outcome(outcome(candidate("wrong"), "wrong", time=1.0))
        assert store.best().candidate == fast.id
        best = store.write_best(fast, store.best(), "# text")
    names = {path.name for path in best.iterdir()}
    assert names == {"kernel.cu", "launch.json", "verdict.json", "model_new.py"}
    assert LaunchPlan.model_validate_json((best / "launch.json").read_text()) == PLAN
    assert json.loads((best / "verdict.json").read_text())["candidate"] == fast.id


def test_torn_last_line_is_owed_again(tmp_path):
    first, second = candidate("a"), candidate("b")
    with created(tmp_path) as store:
        store.append_outcome(outcome(first))
        store.append_outcome(outcome(second))
    results = store.folder / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-20])
    with RunStore.open(store.folder) as again:
        assert again.outcome(first.id) is not None
        assert again.outcome(second.id) is None
        again.append_outcome(outcome(second))
    with RunStore.open(store.folder) as third:
        assert len(third.outcomes()) == 2


@pytest.mark.parametrize("name", ["manifest.json", "results.jsonl", "blobs"])
def test_incomplete_folders_say_what_is_missing(tmp_path, name):
    with created(tmp_path) as store:
        pass
    path = store.folder / name
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=name):
        RunStore.open(store.folder)


def test_foreign_and_damaged_contents_are_named(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        RunStore.open(tmp_path / "nothing")
    with created(tmp_path) as store:
        store.put_candidate(candidate("a"))
    blob = store.folder / "blobs" / f"{candidate('a').id}.json"
    blob.write_text(blob.read_text().replace('"a"', '"b"'))
    with RunStore.open(store.folder) as again:
        with pytest.raises(UserError, match="damaged"):
            again.get_candidate(candidate("a").id)
        with pytest.raises(UserError, match="missing"):
            again.get_candidate("0" * 16)
    (store.folder / "results.jsonl").write_text('{"other": 1}\n')
    with pytest.raises(UserError, match=r"results\.jsonl:1"):
        RunStore.open(store.folder)
    (store.folder / "manifest.json").write_text('{"schema": "of another program"}')
    with pytest.raises(UserError, match="not a Warpsmith manifest"):
        RunStore.open(store.folder)


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)


def test_one_writer_at_a_time_and_a_dead_one_does_not_count(tmp_path):
    opener = "import sys; from warpsmith.tools.runs.store import RunStore as S; S.open(sys.argv[1]); print('open')"
    with created(tmp_path) as store:
        other = run_script(opener, store.folder)
        assert "being written by another process" in other.stderr
        with pytest.raises(UserError, match="another process"):
            RunStore.open(store.folder)
        RunStore.open(store.folder, writable=False).close()
        assert "being written" in run_script(opener, store.folder).stderr
    assert run_script(opener, store.folder).stdout == "open\n"

    holder = f"{opener}; import time; sys.stdout.flush(); time.sleep(600)"
    command = [sys.executable, "-c", holder, str(store.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    RunStore.open(store.folder).close()


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.kernels.records import Outcome, Failure
from warpsmith.tools.runs.store import RunStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = RunStore.open(sys.argv[1])
written = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    while True:
        failure = Failure(stage="verify", message="x" * 500)
        outcome = Outcome(candidate=f"c{written}", problem_hash="h", status="wrong", failure=failure)
        store.append_outcome(outcome)
        written += 1
except EnvironmentError_ as error:
    assert "free some space" in str(error) and "--resume" in str(error), error
try:
    store.put_blob(b"y" * 50000)
except EnvironmentError_ as error:
    print(written, len(list((Path(sys.argv[1]) / "blobs").iterdir())))
"""


def test_full_disk_is_a_clear_error_and_loses_nothing(tmp_path):
    with created(tmp_path) as store:
        pass
    done = run_script(FULL_DISK, store.folder)
    assert done.returncode == 0, done.stderr
    written, blobs = map(int, done.stdout.split())
    assert written > 5
    assert blobs == 0
    with RunStore.open(store.folder) as again:
        assert len(again.outcomes()) == written


def test_unwritable_place(tmp_path):
    occupied = Path(tmp_path) / "file"
    occupied.write_text("")
    with pytest.raises(UserError, match="--out"):
        RunStore.create("x", occupied)
