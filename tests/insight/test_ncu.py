"""Nsight Compute without a GPU: reading its tables, and every way in which it may refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support.problems import problem
from support.processes import alive, wait_until
from support.scripts import benchmark

from warpsmith.app.workbench import bench_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.tools.profiling import counters_ncu
from warpsmith.tools.profiling.counters import METRICS, standard
from warpsmith.tools.profiling.counters_ncu import (
    Ncu,
    NcuRefused,
    command,
    find_ncu,
    ncu_metrics,
    parse_raw,
    probe,
    refusal,
    run_ncu,
)  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "data" / "h200_ncu_counters.json").read_text())["kernels"]
FIRST = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
         "Device", "CC")  # fmt: skip
TALK = '==PROF== Connected to process 4711 (/usr/bin/python3.11)\n==PROF== Profiling "row": 0%....100% - 12 passes\n'
REFUSED = (
    "==PROF== Connected to process 4711\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
    "NVIDIA GPU Performance Counters on the target device 0.\n==WARNING== No kernels were profiled.\n"
)


def raw_page(launches: list[tuple[str, dict[str, float | str]]]) -> str:
    """A table in the layout of `--csv --page raw`, as ncu 2025.3 writes it: names, units, a row a launch."""
    names = list(dict.fromkeys(name for _, figures in launches for name in figures))
    rows = [[*FIRST, *names], [*[""] * len(FIRST), *["unit"] * len(names)]]
    for index, (kernel, figures) in enumerate(launches):
        place = [
            str(index),
            "4711",
            "python3.11",
            "127.0.0.1",
            kernel,
            "1",
            "13",
            "(256, 1, 1)",
            "(64, 1, 1)",
            "0",
            "9.0",
        ]
        cells = [figures.get(name, "n/a") for name in names]
        rows.append([*place, *(cell if isinstance(cell, str) else f"{cell:,.6f}" for cell in cells)])
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return TALK + "\n".join(lines) + "\n==PROF== Disconnected from process 4711\n"


def script(folder: Path, body: str) -> Path:
    """A program that stands where ncu would: it gets ncu's arguments, `log` is where ncu's words go."""
    path = folder / "ncu"
    head = f"#!{sys.executable}\nimport os, sys, time, subprocess\nwords = sys.argv[1:]\n"
    head += "log = open(words[words.index('--log-file') + 1], 'w')\n"
    path.write_text(head + textwrap.dedent(body))
    path.chmod(0o755)
    return path


def test_the_recorded_counts_come_back_out_of_a_raw_page() -> None:
    metrics = benchmark("ncu_counters").METRICS
    launches = [
        (kernel, {metrics[name]: pair["ncu"] for name, pair in pairs.items()}) for kernel, pairs in RECORDED.items()
    ]
    found = parse_raw(raw_page(launches))
    for kernel, pairs in RECORDED.items():
        assert found[kernel] == {metrics[name]: pair["ncu"] for name, pair in pairs.items()} | {"launches": 1.0}


def test_launches_of_a_kernel_are_joined_by_what_their_figures_mean() -> None:
    time_ns, hits, size = "gpu__time_duration.sum", "lts__t_sector_hit_rate.pct", "launch__block_size"
    text = raw_page(
        [
            ("row(float*)", {time_ns: 3000.0, hits: 10.0, size: 128.0}),
            ("row(float*)", {time_ns: 1000.0, hits: 50.0, size: 256.0}),
            ("other", {time_ns: 5.0, hits: "n/a", size: 32.0}),
        ]
    )
    found = parse_raw(text)
    assert found["row"] == {"launches": 2.0, time_ns: 4000.0, hits: 20.0, size: 256.0}
    assert found["other"] == {"launches": 1.0, time_ns: 5.0, size: 32.0}
    assert standard("ncu", found, {}).kernels["row"]["device_time"] == 4.0


@pytest.mark.parametrize("cell", ["1,234.5", "1\u202f234.5", "1234.5"])
def test_numbers_with_separators(cell: str) -> None:
    assert parse_raw(raw_page([("k", {"gpu__time_duration.sum": cell})]))["k"]["gpu__time_duration.sum"] == 1234.5


@pytest.mark.parametrize("text", ["", TALK, REFUSED, '"ID"\n', '"ID","Kernel Name"\n"0","k"\n', "\x00\xff"])
def test_output_without_counts_gives_none(text: str) -> None:
    assert parse_raw(text) == {}


def test_only_what_the_table_needs_is_asked_for() -> None:
    names = ncu_metrics()
    assert len(names) == len(set(names))
    assert set(names) == {n for m in METRICS if m.ncu for n in m.ncu.names} - {"launches"}
    words = command(Path("/opt/ncu"), names, ["row", "a.b"], Path("/tmp/log"))
    text = " ".join(words)
    assert "--clock-control none" in text
    assert "--csv --page raw --print-units base" in text
    assert "--log-file /tmp/log" in text
    assert r"regex:^(row|a\.b)$" in words


def test_the_tables_metrics_are_those_that_were_checked_against_the_emulator() -> None:
    assert set(benchmark("ncu_counters").METRICS.values()) <= set(ncu_metrics())


def test_without_permission_the_verdict_stands_with_other_counters(tmp_path: Path) -> None:
    ncu = script(tmp_path, f"log.write({REFUSED!r}); log.close(); sys.exit(1)")
    found = run_ncu(ncu, ["true"], ["row"], tmp_path, cache=tmp_path / "cache")
    assert isinstance(found, NcuRefused)
    assert (found.kind, found.tell) == ("permission", True)
    assert "ERR_NVGPUCTRPERM" in found.text
    assert "NVreg_RestrictProfilingToAdminUsers" in found.text
    assert json.loads((tmp_path / "cache" / "ncu_refused.json").read_text())["key"][0] == str(ncu)


def test_a_metric_that_this_ncu_does_not_know_is_left_out(tmp_path: Path) -> None:
    gone = "smsp__inst_executed_pipe_xu.sum"
    page = raw_page([("row", {"gpu__time_duration.sum": 2000.0})])
    body = f"""
    asked = words[words.index("--metrics") + 1].split(",")
    log.write("==ERROR== Failed to find metric {gone}\\n" if {gone!r} in asked else {page!r})
    """
    assert run_ncu(script(tmp_path, body), ["true"], ["row"], tmp_path) == {
        "row": {"launches": 1.0, "gpu__time_duration.sum": 2000.0}
    }


def test_what_device_code_prints_is_not_read_as_counts(tmp_path: Path) -> None:
    forged = raw_page([("row", {"gpu__time_duration.sum": 1.0})])
    said = "==WARNING== No kernels were profiled."
    body = f"sys.stdout.write({forged!r}); sys.stderr.write({forged!r}); log.write({said!r})"
    found = run_ncu(script(tmp_path, body), ["true"], ["row"], tmp_path)
    assert isinstance(found, NcuRefused)
    assert found.kind == "failed"


def test_a_profile_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    body = f"""
    inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open({str(child)!r}, "w").write(str(inner.pid))
    time.sleep(60)
    """
    found = run_ncu(script(tmp_path, body), ["true"], ["row"], tmp_path, timeout_s=1.5)
    assert isinstance(found, NcuRefused)
    assert found.kind == "timeout"
    assert ended(int(child.read_text()))


def test_a_program_that_cannot_be_started_is_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "ncu"
    path.write_text("not a program")
    assert isinstance(run_ncu(path, ["true"], ["row"], tmp_path), NcuRefused)


def test_ncu_is_found_on_the_path_or_where_it_is_installed(tmp_path: Path) -> None:
    assert find_ncu(str(tmp_path), ()) is None
    path = script(tmp_path, "")
    assert find_ncu(str(tmp_path), ()) == path
    assert find_ncu("", (str(tmp_path / "n*"),)) == path


def test_the_drivers_rule_is_read_before_anything_runs(tmp_path: Path) -> None:
    script(tmp_path, "")
    params, status = tmp_path / "params", tmp_path / "status"
    status.write_text("CapEff:\t0000000000000000\n")
    for rule, allowed in (("1", False), ("0", True)):
        params.write_text(f"RmProfilingAdminOnly: {rule}\n")
        found = probe(search=str(tmp_path), places=(), cache=tmp_path, params=params, status=status)
        assert isinstance(found, Ncu) is allowed, found
    status.write_text("CapEff:\t000001ffffffffff\n")
    params.write_text("RmProfilingAdminOnly: 1\n")
    assert isinstance(probe(search=str(tmp_path), places=(), cache=tmp_path, params=params, status=status), Ncu)


def test_a_refusal_is_remembered_for_this_machine_until_something_changes(tmp_path: Path) -> None:
    ncu = script(tmp_path, f"log.write({REFUSED!r})")
    assert isinstance(probe(search=str(tmp_path), places=(), cache=tmp_path), Ncu)
    run_ncu(ncu, ["true"], ["row"], tmp_path, cache=tmp_path)
    found = probe(search=str(tmp_path), places=(), cache=tmp_path)
    assert isinstance(found, NcuRefused)
    assert found.kind == "permission"
    record = json.loads((tmp_path / "ncu_refused.json").read_text())
    record["key"][1] = "another boot"
    (tmp_path / "ncu_refused.json").write_text(json.dumps(record))
    assert isinstance(probe(search=str(tmp_path), places=(), cache=tmp_path), Ncu)


def test_a_missing_ncu_is_not_worth_a_warning(tmp_path: Path) -> None:
    found = probe(search=str(tmp_path), places=(), cache=tmp_path)
    assert isinstance(found, NcuRefused)
    assert (found.kind, found.tell) == ("missing", False)


def test_refusals_are_told_apart() -> None:
    assert refusal(REFUSED) is not None
    assert refusal("==WARNING== No kernels were profiled.") is not None
    assert refusal("something else") is None


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A payload for the runner, of a candidate compiled for the emulator."""
    folder = tmp_path_factory.mktemp("runner")
    path = folder / "relu.py"
    path.write_text(problem())
    bench = bench_for(load_problem(str(path)), device="cpu", arch=None)
    spec = specs_for(bench.plan().region, bench.machine.model)[0]
    candidate: Candidate = spec.emit(spec.sensible())
    report = bench.compiler.compile(candidate)
    assert report.ok
    parts = {"problem": bench.problem.ref, "target": bench.machine.target, "plan": candidate.plan, "report": report}
    return {name: part.model_dump(mode="json") for name, part in parts.items()}


def run_runner(payload: dict[str, object], folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "payload.json"
    path.write_text(json.dumps(payload))
    words = [sys.executable, "-P", "-m", "warpsmith.tools.profiling.profile_runner", str(path), str(os.getpid())]
    return subprocess.run(words, capture_output=True, text=True, check=False, start_new_session=True)


def test_the_runner_runs_a_plan_once_and_leaves_its_mark(compiled: dict[str, object], tmp_path: Path) -> None:
    done = run_runner(compiled, tmp_path)
    assert done.returncode == 0, done.stderr
    assert counters_ncu.done_mark(tmp_path / "payload.json").exists()


def test_the_runner_tells_of_a_plan_that_fails(compiled: dict[str, object], tmp_path: Path) -> None:
    plan = json.loads(json.dumps(compiled["plan"]))
    plan["steps"][0]["block"] = [2048, 1, 1]
    done = run_runner(compiled | {"plan": plan}, tmp_path)
    assert done.returncode == 1
    assert "too_many_threads" in done.stderr
    assert not counters_ncu.done_mark(tmp_path / "payload.json").exists()


def test_the_runner_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    asker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    body = f"import warpsmith.tools.profiling.profile_runner as r; r._end_with({asker.pid})"
    waiting = subprocess.Popen([sys.executable, "-P", "-c", body], start_new_session=True)
    time.sleep(0.2)
    assert waiting.poll() is None
    asker.kill()
    asker.wait()
    assert waiting.wait(60) == -9


def ended(pid: int) -> bool:
    """Whether a process is gone (or a zombie) within a while."""
    return wait_until(lambda: not alive(pid), 30)
