"""Compiler processes: light, confined, replaced when they die, and never outliving their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from compile_samples import candidate, copy_kernel, macro_bomb
from support.processes import alive, wait_until

from warpsmith.kernels.errors import EnvironmentError_, SandboxTimeout, WorkerDied
from warpsmith.sandbox.compile_client import CompileWorker
from warpsmith.sandbox.compile_pool import CompilePool
from warpsmith.sandbox.nvrtc import load_nvrtc
from warpsmith.tools.compile import Compiler

OPTIONS = ("--gpu-architecture=sm_90",)


def _gone(pid: int) -> bool:
    """Whether a process ends (or is at most a zombie) within a while."""
    return wait_until(lambda: not alive(pid), 60)


def test_the_worker_needs_neither_torch_nor_pydantic() -> None:
    heavy = "{'torch', 'pydantic', 'numpy'} & set(sys.modules)"
    code = f"import sys, warpsmith.sandbox.compile_worker; print(sorted({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_dead_worker_is_an_exception_and_closing_twice_is_harmless() -> None:
    worker = CompileWorker(load_nvrtc().library)
    assert worker.compile(copy_kernel(), OPTIONS, 30.0).code == 0
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        worker.compile(copy_kernel(), OPTIONS, 30.0)
    worker.close()
    worker.close()
    assert not worker.alive


def test_after_the_deadline_the_worker_is_dead() -> None:
    worker = CompileWorker(load_nvrtc().library)
    with pytest.raises(SandboxTimeout):
        worker.compile(macro_bomb(), OPTIONS, 0.5)
    assert not worker.alive


def test_a_worker_stopped_before_it_reads_does_not_hold_up_the_parent() -> None:
    worker = CompileWorker(load_nvrtc().library)
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(SandboxTimeout):
        worker.compile("// " + "x" * 1_000_000, OPTIONS, 0.5)
    assert not worker.alive


def test_a_library_that_cannot_be_used_is_said_by_the_worker(tmp_path: Path) -> None:
    fake = tmp_path / "libnvrtc.so.13"
    fake.write_bytes(b"\x7fELF")
    with pytest.raises(EnvironmentError_, match="pip install"):
        CompileWorker(fake)


def test_a_worker_killed_between_two_compiles_is_replaced_unseen(tmp_path: Path) -> None:
    with Compiler("sm_90", cache_dir=tmp_path, jobs=1) as compiler:
        assert compiler.compile(candidate(copy_kernel(1))).ok
        (pid,) = compiler.pids()
        os.kill(pid, signal.SIGKILL)
        assert _gone(pid)
        assert compiler.compile(candidate(copy_kernel(2))).ok
        assert pid not in compiler.pids()


def test_a_compile_that_kills_its_process_twice_is_a_crash_of_that_candidate(tmp_path: Path) -> None:
    with Compiler("sm_90", cache_dir=tmp_path, jobs=1, timeout_s=30.0) as compiler:
        assert compiler.compile(candidate(copy_kernel(1))).ok
        killer = subprocess.Popen([sys.executable, "-c", _KILLER, str(os.getpid())])
        try:
            report = compiler.compile(candidate(macro_bomb()))
        finally:
            killer.kill()
            killer.wait()
        assert report.failure is not None
        assert (report.failure.stage, report.failure.kind) == ("compile", "crash")
        assert "SIGSEGV" in report.failure.message
        assert compiler.compile(candidate(copy_kernel(3))).ok


_KILLER = """
import os, pathlib, signal, sys, time
parent = int(sys.argv[1])
while True:
    for entry in pathlib.Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split() if entry.name.isdigit() else None
            if fields and int(fields[1]) == parent:
                busy = int(fields[11]) + int(fields[12])
                if busy > 40 and b"compile_worker" in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGSEGV)
        except (OSError, IndexError):
            pass
    time.sleep(0.02)
"""


def test_closing_ends_all_processes_and_what_they_were_doing() -> None:
    pool = CompilePool(load_nvrtc().library, jobs=2)
    futures = [pool.submit(macro_bomb(), OPTIONS, 60.0) for _ in range(3)]
    end = time.monotonic() + 30.0
    while len(pool.pids()) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    pids = pool.pids()
    assert len(pids) == 2
    pool.close()
    assert all(_gone(pid) for pid in pids)
    assert all(future.done() for future in futures)


def test_closing_a_compiler_is_no_verdict_on_what_it_was_compiling(tmp_path: Path) -> None:
    compiler = Compiler("sm_90", cache_dir=tmp_path, jobs=1)
    with ThreadPoolExecutor(1) as thread:
        verdict = thread.submit(compiler.compile, candidate(macro_bomb()))
        end = time.monotonic() + 30.0
        while not compiler.pids() and time.monotonic() < end:
            time.sleep(0.02)
        compiler.close()
        with pytest.raises(WorkerDied):
            verdict.result()


@pytest.mark.parametrize("busy", [False, True])
def test_workers_die_with_a_killed_parent(tmp_path: Path, busy: bool) -> None:
    code = _PARENT.format(cache=str(tmp_path), busy=busy)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _gone(pid)


_PARENT = """
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from warpsmith.sandbox.compile_pool import CompilePool
from warpsmith.sandbox.nvrtc import load_nvrtc
bomb = "\\n".join(["#define M0 y[0] += 1.0f;"] + [f"#define M{{i + 1}} " + f"M{{i}} " * 10 for i in range(7)])
pool = CompilePool(load_nvrtc().library, jobs=1)
pool.submit("extern \\"C\\" __global__ void k(float* y) {{}}", ("--gpu-architecture=sm_90",), 60.0).result()
if {busy}:
    pool.submit(bomb + "\\n__global__ void k(float* y) {{ M7 }}", ("--gpu-architecture=sm_90",), 60.0)
    time.sleep(0.3)
print(pool.pids()[0], flush=True)
time.sleep(60)
"""
