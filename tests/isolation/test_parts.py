"""The parts of the isolation by themselves: filters, groups, folders, watching, lanes of compilers."""

import asyncio
import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warpsmith.app.doctor_isolation import isolation_checks
from warpsmith.kernels.errors import WorkerDied
from warpsmith.sandbox.compile_client import CompileWorker, TooMuchMemory
from warpsmith.sandbox.compile_pool import CompilePool
from warpsmith.sandbox.driver_probe import DriverFacts
from warpsmith.sandbox.isolation import cgroup, folders, identity, seccomp, syscalls, watch
from warpsmith.sandbox.isolation.policy import Policy, visible_entries
from warpsmith.sandbox.isolation.profile import is_on
from warpsmith.sandbox.nvrtc import load_nvrtc
from warpsmith.sandbox.worker import CALLS_PER_RUNNER, Worker

OPTIONS = ("--gpu-architecture=sm_90",)
SELF = "warpsmith.sandbox.selftest"
needs_filters = pytest.mark.skipif(not syscalls.known_machine(), reason="no table of system calls for this machine")
GOOD = 'extern "C" __global__ void k(float* y) { y[0] = 1; }'
MACROS = "\n".join(["#define M0 y[0] += 1.0f;"] + [f"#define M{i + 1} " + f"M{i} " * 10 for i in range(7)])
BOMB = MACROS + '\nextern "C" __global__ void k(float* y) { M7 }'
TEMPLATES = """
template <int D, long long P> struct T { static constexpr int v = T<D - 1, 2 * P>::v + T<D - 1, 2 * P + 1>::v; };
template <long long P> struct T<0, P> { static constexpr int v = 1; };
extern "C" __global__ void k(float* y) { y[0] = T<40, 0>::v; }
"""


def in_child(script: str) -> list:
    """What a script prints as JSON, run in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_filters
def test_the_compilers_filter_allows_threads_and_nothing_that_reaches_out():
    found = in_child("""
import json, os, socket, threading
from warpsmith.sandbox.isolation import seccomp
seccomp.install(seccomp.COMPILER)
def code(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return 0
ran = []
thread = threading.Thread(target=lambda: ran.append(1)); thread.start(); thread.join()
print(json.dumps([ran, code(os.fork), code(lambda: socket.socket(socket.AF_UNIX)), code(lambda: os.kill(1, 0)),
    code(lambda: os.execv("/bin/true", ["true"]))]))
""")
    assert found == [[1], errno.EPERM, errno.EACCES, errno.EPERM, errno.EPERM]


@needs_filters
def test_the_runners_filter_allows_what_cuda_and_torch_compile_need():
    found = in_child("""
import json, os, mmap, socket, subprocess, threading
from warpsmith.sandbox.isolation import seccomp
seccomp.install(seccomp.RUNNER)
ran = []
thread = threading.Thread(target=lambda: ran.append(1)); thread.start(); thread.join()
os.close(os.memfd_create("x"))
os.close(os.eventfd(0))
socket.socket(socket.AF_UNIX).close()
ran.append(subprocess.run(["true"]).returncode)
try:
    socket.socket(socket.AF_INET)
except OSError as error:
    ran.append(error.errno)
print(json.dumps(ran))
""")
    assert found == [1, 0, errno.EACCES]


@needs_filters
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_bubblewrap_makes_the_namespaces_where_a_process_may_not(tmp_path):
    found = in_child("""
import asyncio, json
from warpsmith.sandbox.isolation import seccomp
from warpsmith.sandbox.worker import Worker
seccomp.install([seccomp.Rule("unshare")])
async def body():
    async with Worker(preload=()) as worker:
        answers = [await worker.call("warpsmith.sandbox.selftest:echo", 1, timeout_s=30)]
        worker.kill()
        answers.append(await worker.call("warpsmith.sandbox.selftest:echo", 2, timeout_s=30))
        return answers, worker.isolation.profile, worker.isolation.layers["namespaces"]
print(json.dumps(asyncio.run(body())))
""")
    assert found == [[1, 2], "user", "on: pid, network, ipc, mount (bubblewrap)"]


@needs_filters
def test_programs_of_filters_are_short_and_end_by_allowing():
    for rules in (seccomp.RUNNER, seccomp.COMPILER):
        text = seccomp.program(rules)
        assert len(text) < 400
        assert text[-1] == (0x06, 0, 0, 0x7FFF0000)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user id")
def test_what_another_user_cannot_reach_is_named(tmp_path):
    user, group = identity.unprivileged_user()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("x")
    assert identity.unreachable(user, group, [Path("/usr")], []) is None
    assert identity.unreachable(user, group, [Path("/usr"), closed / "file"], []) == str(closed / "file")
    assert identity.unreachable(user, group, [], [Path("/usr")]) == "/usr"


def test_a_control_group_is_made_where_the_controllers_are(tmp_path):
    assert cgroup.make(memory_bytes=1, processes=1, root=tmp_path).startswith("off: no control groups")
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    assert cgroup.make(memory_bytes=1, processes=1, root=tmp_path).startswith("off: the control group")
    (tmp_path / "cgroup.subtree_control").write_text("memory pids")
    group = cgroup.make(memory_bytes=1 << 30, processes=77, root=tmp_path)
    assert isinstance(group, cgroup.Group)
    assert (group.folder / "memory.max").read_text() == str(1 << 30)
    assert (group.folder / "pids.max").read_text() == "77"


def test_a_process_tree_is_measured_with_its_children():
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    parent = subprocess.Popen([sys.executable, "-c", f"{script}; held = b'x' * (64 << 20); time.sleep(60)"])
    try:
        for _ in range(200):
            found = watch.usage(parent.pid)
            if found.processes == 2 and found.resident_bytes > 64 << 20:
                break
            time.sleep(0.05)
        assert found.processes == 2
        assert "GB of memory" in watch.excess(parent.pid, memory_bytes=32 << 20, processes=0)
        assert "2 processes" in watch.excess(parent.pid, memory_bytes=0, processes=1)
        assert watch.excess(parent.pid, memory_bytes=8 << 30, processes=9) is None
    finally:
        for child in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split():
            os.kill(int(child), 9)
        parent.kill()
        parent.wait()


def test_folders_of_killed_runs_are_taken_away_live_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    abandoned, held = tmp_path / "warpsmith-run-old", tmp_path / "warpsmith-run-held"
    for folder in (abandoned, held):
        folder.mkdir()
        os.utime(folder, (0, 0))
    handle = os.open(held, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    own = folders.OwnFolder()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([held.name, own.path.name])
    own.remove()
    os.close(handle)
    assert [path.name for path in tmp_path.iterdir()] == [held.name]


def test_policies_survive_json_and_very_large_folders_show_their_python_files(tmp_path):
    policy = Policy(profile="user", read=("/a",), folders=("/b",), gpu=True, memory_bytes=5)
    assert Policy.of(json.loads(json.dumps(policy.document()))) == policy
    for n in range(1100):
        (tmp_path / f"{n}.bin").touch()
    (tmp_path / "problem.py").touch()
    assert visible_entries([tmp_path, tmp_path / "missing"]) == [tmp_path / "problem.py"]


def test_floods_on_the_standard_streams_stay_small():
    async def body():
        async with Worker(preload=()) as worker:
            assert await worker.call(f"{SELF}:shout", 64 << 20, timeout_s=60) == 64 << 20
            return worker.log_tail()

    assert len(asyncio.run(body())) <= 2000


def test_a_runner_that_answered_very_much_is_replaced_between_jobs():
    async def body():
        async with Worker(preload=()) as worker:
            for _ in range(CALLS_PER_RUNNER):
                worker.renew()
                assert worker.generation == 1
                await worker.call(f"{SELF}:echo", 1, timeout_s=30)
            worker.renew()
            await worker.call(f"{SELF}:echo", 1, timeout_s=30)
            return worker.generation

    assert asyncio.run(body()) == 2


def test_a_compile_that_takes_too_much_memory_is_stopped_once():
    pool = CompilePool(load_nvrtc().library, jobs=1)
    try:
        with pytest.raises(TooMuchMemory, match="GB of memory"):
            pool.submit(TEMPLATES, OPTIONS, 120.0).result()
        assert pool.submit(GOOD, OPTIONS, 60.0).result().code == 0
    finally:
        pool.close()


def test_a_slow_compile_leaves_its_lane_to_others():
    pool = CompilePool(load_nvrtc().library, jobs=1, patience_s=0.3)
    try:
        bombs = [pool.submit(BOMB, OPTIONS, 120.0) for _ in range(2)]
        assert pool.submit(GOOD, OPTIONS, 60.0).result().code == 0
        assert not any(bomb.done() for bomb in bombs)
    finally:
        pool.close()
    with pytest.raises(WorkerDied):
        bombs[0].result()


def test_a_compiler_process_says_its_layers_and_reads_no_other_file(tmp_path):
    worker = CompileWorker(load_nvrtc().library)
    try:
        if not is_on(worker.layers, "landlock"):
            pytest.skip("no Landlock here")
        secret = tmp_path / "secret.h"
        secret.write_text("#error the secret text\n")
        reply = worker.compile(f'#include "{secret}"\n{GOOD}', OPTIONS, 60.0)
        assert reply.code != 0
        assert "secret text" not in reply.log
        status = Path(f"/proc/{worker.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
    finally:
        worker.close()


def test_doctor_shows_profile_layers_attempts_and_remedies():
    checks = isolation_checks(load_nvrtc(), DriverFacts("no driver", None, ()))
    names = [check.name for check in checks]
    assert names[0] == "isolation"
    assert len(set(names)) == len(names)
    assert {"layer: landlock", "attempt: connect", "attempt: endless job", "compiler isolation"} <= set(names)
    assert all(check.remedy for check in checks if check.state != "ok")
    assert not [check for check in checks if check.state == "fail"]


def test_doctor_says_why_a_profile_cannot_be_had(monkeypatch):
    monkeypatch.setenv("WARPSMITH_ISOLATION", "tight")
    (check,) = isolation_checks(load_nvrtc(), DriverFacts("no driver", None, ()))
    assert check.state == "fail"
    assert "tight" in check.detail
    assert "WARPSMITH_ISOLATION" in check.remedy


def test_sockets_of_this_test_still_work():
    """The filters above ran in children: this process is as it was."""
    socket.socket(socket.AF_INET).close()


def test_the_folder_of_locks_is_opened_to_all_but_never_through_a_link(tmp_path):
    from warpsmith.sandbox.nursery import _open_to_all

    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (tmp_path / "locks").symlink_to(victim)
    _open_to_all(tmp_path / "locks")
    assert victim.stat().st_mode & 0o7777 == 0o755
    _open_to_all(tmp_path / "made")
    assert (tmp_path / "made").stat().st_mode & 0o7777 == 0o1777
