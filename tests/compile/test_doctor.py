"""doctor: every check on this machine, and the verdicts on machines that lack something."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from warpsmith.app import doctor
from warpsmith.kernels.device import model_from_properties
from warpsmith.sandbox.driver_probe import DriverFacts, ask_driver, probe
from warpsmith.sandbox.nvrtc import load_nvrtc

NO_DRIVER = DriverFacts("no NVIDIA driver", None, ())
H200 = {"name": "NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132}


def gpu(version: str, **changes: int | str) -> DriverFacts:
    return DriverFacts(None, version, (H200 | changes,))


def test_all_checks_answer_on_this_machine_and_make_json(tmp_path: Path) -> None:
    checks = doctor.diagnose(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")
    states = {check.name: check.state for check in checks}
    assert len(states) == len(checks)
    for name in ("python", "torch", "nvrtc", "compile", "cache folder", "runs folder"):
        assert states[name] == "ok"
    assert all(check.remedy for check in checks if check.state != "ok")
    assert json.loads(json.dumps([check.model_dump(mode="json") for check in checks]))
    assert doctor.usable(checks) == ("fail" not in states.values())
    assert list(tmp_path.iterdir()) == []


def test_the_compile_check_compiles() -> None:
    check = doctor.check_compile(load_nvrtc())
    assert check.state == "ok"
    assert "registers" in check.detail


def test_without_nvrtc_everything_that_needs_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_NVRTC", "/nowhere/libnvrtc.so")
    load_nvrtc.cache_clear()
    try:
        checks = {check.name: check for check in doctor.diagnose()}
    finally:
        monkeypatch.undo()
        load_nvrtc.cache_clear()
    assert checks["nvrtc"].state == checks["compile"].state == "fail"
    assert "pip install" in str(checks["nvrtc"].remedy)
    assert not doctor.usable(list(checks.values()))


@pytest.mark.parametrize(("version", "state"), [((3, 10, 9), "fail"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok")])
def test_python_versions(version: tuple[int, int, int], state: str) -> None:
    assert doctor.check_python(version).state == state


def test_a_driver_older_than_nvrtc_fails_with_the_wheel_to_install() -> None:
    nvrtc = load_nvrtc()
    check = doctor.check_match(gpu(f"{nvrtc.major - 1}.8"), nvrtc)
    assert check.state == "fail"
    assert f"nvidia-cuda-nvrtc-cu{nvrtc.major - 1}" in str(check.remedy)
    assert doctor.check_match(gpu(f"{nvrtc.major}.0"), nvrtc).state == "ok"
    assert doctor.check_match(gpu(f"{nvrtc.major + 1}.0"), nvrtc).state == "ok"


def test_a_gpu_that_nvrtc_does_not_know_fails() -> None:
    nvrtc = load_nvrtc()
    check = doctor.check_match(gpu(nvrtc.version, name="Tesla K80", major=3, minor=7), nvrtc)
    assert check.state == "fail"
    assert "Tesla K80" in check.detail


def test_nothing_needs_to_match_without_a_gpu() -> None:
    assert doctor.check_match(NO_DRIVER, load_nvrtc()).state == "absent"
    assert doctor.check_driver(NO_DRIVER).state == "warn"
    assert doctor.check_driver(DriverFacts(None, "13.0", ())).state == "warn"
    assert doctor.check_driver(gpu("13.0")).state == "ok"


@pytest.mark.parametrize(
    ("facts", "wheels", "state", "said"),
    [
        (gpu("13.0"), ("cupy-cuda12x", "cupy-cuda13x"), "fail", "uninstall"),
        (NO_DRIVER, ("cupy-cuda12x", "cupy-cuda13x"), "fail", "uninstall"),
        (NO_DRIVER, (), "absent", ""),
        (gpu("13.0"), (), "fail", "cupy-cuda13x"),
        (gpu("12.4"), (), "fail", "cupy-cuda12x"),
        (gpu("12.4"), ("cupy-cuda13x",), "fail", "cupy-cuda12x"),
        (gpu("13.0"), ("cupy-cuda13x",), "ok", ""),
        (gpu("13.0"), ("cupy-cuda12x",), "ok", ""),
    ],
)
def test_cupy_must_be_one_and_fit_the_driver(
    facts: DriverFacts, wheels: tuple[str, ...], state: str, said: str
) -> None:
    check = doctor.check_cupy(facts, wheels)
    assert check.state == state
    assert said in str(check.remedy)


@pytest.mark.parametrize(("free", "state"), [(1 << 20, "fail"), (1 << 30, "warn"), (1 << 40, "ok")])
def test_free_disk(tmp_path: Path, free: int, state: str) -> None:
    assert doctor.check_disk("disk", tmp_path, usage=lambda _: free).state == state
    assert doctor.check_disk("disk", tmp_path / "not" / "yet").detail.endswith("GB free")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    assert doctor.check_writable("runs folder", Path("/proc/runs"), remedy="elsewhere").state == "fail"
    assert doctor.check_writable("runs folder", tmp_path / "new", remedy="elsewhere").state == "ok"
    assert not (tmp_path / "new").exists()


def test_a_missing_driver_is_a_fact_and_not_an_exception() -> None:
    answer = ask_driver("libno-such-driver.so.1")
    assert answer["devices"] == []
    assert "libno-such-driver.so.1" in answer["error"]


def test_a_fake_driver_is_read_through_the_same_calls(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "fake.c"
    source.write_text(_FAKE_DRIVER)
    library = tmp_path / "libfake.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    answer = ask_driver(str(library))
    assert (answer["error"], answer["cuda_version"]) == (None, "12.8")
    (device,) = answer["devices"]
    assert (device["name"], device["major"], device["multiProcessorCount"]) == ("NVIDIA H200", 75, 16)
    model = model_from_properties(device | {"major": 9, "minor": 0})
    assert model.shared_per_sm == 81


_FAKE_DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* v) { *v = 12080; return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetName(char* name, int n, int d) { strncpy(name, "NVIDIA H200", n); return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a; return a == 111 ? 1 : 0; }
"""


def test_the_probe_runs_in_a_process_of_its_own() -> None:
    facts = probe()
    assert (facts.error is None) == (facts.cuda_version is not None)
    assert probe(timeout_s=0.001).error is not None
