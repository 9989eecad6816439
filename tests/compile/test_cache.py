"""The compile cache under parallel processes, damage, and disks that take no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compile_samples import SHARED, candidate

from warpsmith.kernels.errors import UserError
from warpsmith.tools.compile import Compiler, compile_candidate
from warpsmith.tools.compile_cache import CACHE_VARIABLE, CompileCache, default_cache_dir, entry_of

_MANY = """
import asyncio, json, sys
from pathlib import Path
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.tools.compile import Compiler
plan = LaunchPlan(steps=(KernelStep(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), args=()),))
def source(i): return f'extern "C" __global__ void k(float* y) {{ y[0] = {i}.0f; }}'
with Compiler("sm_90", cache_dir=Path(sys.argv[1]), jobs=1) as compiler:
    for _ in range(2):
        candidates = [Candidate(source=source(i), plan=plan) for i in range(6)]
        reports = asyncio.run(compiler.compile_many(candidates))
print(json.dumps([[report.ok, report.modules[0].cubin_hash] for report in reports]))
"""


def _files(folder: Path, suffix: str) -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{suffix}") if path.is_file())


def test_many_processes_share_one_cache(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", _MANY, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = []
    for process in running:
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        answers.append(json.loads(text))
    assert all(answer == answers[0] for answer in answers)
    assert all(ok for ok, _ in answers[0])
    assert len(_files(tmp_path, ".cubin")) == len(_files(tmp_path, ".json")) == 6
    assert _files(tmp_path, ".tmp") == []


@pytest.mark.parametrize("suffix", [".cubin", ".ptx", ".json"])
@pytest.mark.parametrize("damage", ["torn", "empty", "garbage", "flipped", "missing", "folder"])
def test_a_damaged_entry_is_compiled_anew(tmp_path: Path, suffix: str, damage: str) -> None:
    cache = CompileCache(tmp_path)
    cubin, ptx = b"\x7fELF" + bytes(range(256)), b".visible .entry k("
    entry = entry_of(ok=True, description="", seconds=0.1, resources={}, diagnostics=(), cubin=cubin, ptx=ptx)
    key = cache.key("source", options=(), nvrtc_version="13.0")
    cache.put(key, entry, cubin, ptx)
    assert cache.get(key) is not None
    (path,) = _files(tmp_path, suffix)
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        torn, flipped = data[: len(data) // 2], bytes([data[0] ^ 1]) + data[1:]
        path.write_bytes({"torn": torn, "empty": b"", "garbage": b"\0" * 9, "flipped": flipped}[damage])
    assert cache.get(key) is None
    if damage != "folder":
        cache.put(key, entry, cubin, ptx)
        assert cache.get(key) is not None


def test_a_torn_entry_is_mended_by_the_compiler(tmp_path: Path) -> None:
    first = compile_candidate(candidate(SHARED), "sm_90", cache_dir=tmp_path)
    path = Path(first.modules[0].cubin_path)
    path.write_bytes(b"torn")
    with Compiler("sm_90", cache_dir=tmp_path, jobs=1) as compiler:
        second = compiler.compile(candidate(SHARED))
        third = compiler.compile(candidate(SHARED))
    assert (second.ok, second.cached, third.cached) == (True, False, True)
    assert path.read_bytes().startswith(b"\x7fELF")


def test_a_change_of_source_options_or_version_changes_the_key() -> None:
    keys = {
        CompileCache.key(source, options=options, nvrtc_version=version)
        for source in ("a", "b")
        for options in ((), ("-lineinfo",))
        for version in ("12.9", "13.0")
    }
    assert len(keys) == 8


_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from compile_samples import candidate, copy_kernel
from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.tools.compile import Compiler
with Compiler("sm_90", cache_dir=Path({cache!r}), jobs=1) as compiler:
    assert compiler.compile(candidate("broken")).failure.kind == "error"
    {fill}
    try:
        compiler.compile(candidate(copy_kernel()))
    except EnvironmentError_ as error:
        print(error)
    {free}
    assert compiler.compile(candidate(copy_kernel())).ok
"""


def _run_full_disk(command: list[str], cache: Path, *, fill: str, free: str) -> str:
    code = _ON_A_FULL_DISK.format(tests=str(Path(__file__).parent), cache=str(cache), fill=fill, free=free)
    done = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_write_that_the_system_cuts_short_leaves_nothing_behind(tmp_path: Path) -> None:
    low = "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, -1))"
    high = "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))"
    said = _run_full_disk([], tmp_path, fill=low, free=high)
    assert "no space left" in said
    assert CACHE_VARIABLE in said
    assert _files(tmp_path, ".tmp") == []


def test_a_full_disk_is_said_and_corrupts_nothing(tmp_path: Path) -> None:
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount.append(f"mount -t tmpfs -o size=64k none '{tmp_path}' && exec \"$@\"")
    if subprocess.run([*mount, "sh", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets no user mount a small file system")
    filler = str(tmp_path / "filler")
    fill = (
        f"handle = open({filler!r}, 'wb', buffering=0)\n    try:\n"
        "        while True: handle.write(bytes(512))\n"
        "    except OSError: pass"
    )
    free = f"Path({filler!r}).unlink(); handle.close()"
    said = _run_full_disk([*mount, "sh"], tmp_path, fill=fill, free=free)
    assert "no space left" in said


def test_a_cache_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=CACHE_VARIABLE):
        CompileCache(tmp_path / "file" / "cache")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "here"))
    assert default_cache_dir() == tmp_path / "here"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "warpsmith"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "warpsmith"
