"""Looks at this machine and says what works, what does not, and how to mend it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from warpsmith.app.doctor_checks import Check
from warpsmith.app.doctor_isolation import compile_probe, isolation_checks
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.sandbox.driver_probe import DriverFacts, probe
from warpsmith.sandbox.nvrtc import INSTALL_HINT, Nvrtc, include_dirs, load_nvrtc
from warpsmith.tools.compile_cache import CACHE_VARIABLE, default_cache_dir
from warpsmith.tools.profiling import counters_ncu

MIN_PYTHON = (3, 11)
MIN_TORCH = (2, 10)
FREE_FAIL, FREE_WARN = 200 << 20, 2 << 30
"""Bytes of free disk: a run with its cache takes tens to hundreds of megabytes."""

_EMULATOR = "warpsmith.sandbox.emulator"
_CUPY_WHEELS = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


def diagnose(*, runs_dir: Path = Path("runs"), cache_dir: Path | None = None) -> list[Check]:
    """All checks, in a fixed order; none raises. `fail`: something that the product needs is missing; `absent`: what is
    not here and not needed."""
    cache = cache_dir or default_cache_dir()
    facts = probe()
    nvrtc = _nvrtc_or_none()
    return [
        check_python(),
        check_torch(),
        check_nvrtc(),
        check_compile(nvrtc),
        check_headers(nvrtc),
        check_driver(facts),
        check_match(facts, nvrtc),
        check_cupy(facts, installed_wheels()),
        check_emulator(),
        check_writable("cache folder", cache, remedy=f"set ${CACHE_VARIABLE} to a folder you can write"),
        check_writable("runs folder", runs_dir, remedy="pass --out with a folder you can write"),
        check_disk("disk of the cache", cache),
        check_disk("disk of the runs", runs_dir),
        check_profiler(facts),
        *isolation_checks(nvrtc, facts),
    ]


def usable(checks: list[Check]) -> bool:
    """Whether nothing failed."""
    return all(check.state != "fail" for check in checks)


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """The interpreter's version."""
    text = ".".join(map(str, version))
    if version[:2] < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        return Check(name="python", state="fail", detail=text, remedy=f"install Python {wanted} or later")
    return Check(name="python", state="ok", detail=text)


def check_torch() -> Check:
    """PyTorch is there and recent enough; it is not imported, which takes seconds."""
    version = _version_of("torch")
    if version is None:
        remedy = f"pip install 'torch>={MIN_TORCH[0]}.{MIN_TORCH[1]}'"
        return Check(name="torch", state="fail", detail="not installed", remedy=remedy)
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < MIN_TORCH:
        remedy = f"pip install 'torch>={MIN_TORCH[0]}.{MIN_TORCH[1]}'"
        return Check(name="torch", state="warn", detail=f"{version} is older than tested", remedy=remedy)
    return Check(name="torch", state="ok", detail=version)


def check_nvrtc() -> Check:
    """The compiler library is found and says its version."""
    try:
        nvrtc = load_nvrtc()
    except WarpsmithError as error:
        return Check(name="nvrtc", state="fail", detail=str(error), remedy=INSTALL_HINT)
    newest = f"sm_{nvrtc.archs[-1]}"
    detail = f"{nvrtc.version} ({nvrtc.library.name}), sm_{nvrtc.archs[0]} to {newest}"
    return Check(name="nvrtc", state="ok", detail=detail)


def check_compile(nvrtc: Nvrtc | None) -> Check:
    """A kernel really compiles to a cubin, through a compiler process and a fresh cache."""
    if nvrtc is None:
        return Check(name="compile", state="fail", detail="no NVRTC", remedy=INSTALL_HINT)
    arch = "sm_90" if 90 in nvrtc.archs else f"sm_{nvrtc.archs[-1]}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = compile_probe(nvrtc, arch, Path(folder))
    except (WarpsmithError, OSError) as error:
        return Check(name="compile", state="fail", detail=str(error), remedy="reinstall NVRTC: " + INSTALL_HINT)
    if report.failure is not None:
        message = report.failure.message
        return Check(name="compile", state="fail", detail=message, remedy="reinstall NVRTC: " + INSTALL_HINT)
    registers = report.resources["probe"].registers
    detail = f"{arch} in {1e3 * report.seconds:.0f} ms, {registers} registers"
    return Check(name="compile", state="ok", detail=detail)


def check_headers(nvrtc: Nvrtc | None) -> Check:
    """CUDA's device headers, which only sources with an #include need."""
    if nvrtc is None:
        return Check(name="headers", state="warn", detail="not looked for without NVRTC", remedy=INSTALL_HINT)
    if include_dirs(nvrtc):
        return Check(name="headers", state="ok", detail=f"CUDA {nvrtc.major} device headers found")
    if nvrtc.has_bundled_headers:
        return Check(name="headers", state="ok", detail="inside NVRTC, unpacked on first use")
    wheel = "nvidia-cuda-runtime" + ("-cu12" if nvrtc.major == 12 else "")
    return Check(
        name="headers",
        state="warn",
        detail=f"no CUDA {nvrtc.major} device headers: sources that include cuda_fp16.h will not compile",
        remedy=f"pip install {wheel}, or a newer NVRTC; the built-in families need none",
    )


def check_driver(facts: DriverFacts) -> Check:
    """NVIDIA's driver and its GPUs."""
    if facts.error is not None:
        return Check(
            name="gpu",
            state="warn",
            detail=facts.error,
            remedy="install NVIDIA's driver to run on a GPU; without one the emulator runs kernels",
        )
    if not facts.devices:
        detail = f"driver for CUDA {facts.cuda_version}, but no visible GPU"
        return Check(name="gpu", state="warn", detail=detail, remedy="look at $CUDA_VISIBLE_DEVICES and nvidia-smi")
    names = ", ".join(f"{device['name']} (sm_{device['major']}{device['minor']})" for device in facts.devices)
    return Check(name="gpu", state="ok", detail=f"{names}; driver for CUDA {facts.cuda_version}")


def check_match(facts: DriverFacts, nvrtc: Nvrtc | None) -> Check:
    """The driver can load what this NVRTC makes, and NVRTC knows the GPUs."""
    if nvrtc is None or facts.cuda_version is None or not facts.devices:
        detail, remedy = "nothing to match: no GPU or no NVRTC", "nothing to do without a GPU"
        return Check(name="driver and nvrtc", state="absent", detail=detail, remedy=remedy)
    driver_major = int(facts.cuda_version.split(".")[0])
    detail = f"driver CUDA {facts.cuda_version}, NVRTC {nvrtc.version}"
    if driver_major < nvrtc.major:
        return Check(
            name="driver and nvrtc",
            state="fail",
            detail=f"{detail}: a CUDA {driver_major} driver cannot load cubins of CUDA {nvrtc.major}",
            remedy=f"replace nvidia-cuda-nvrtc by nvidia-cuda-nvrtc-cu{driver_major}, or update the driver",
        )
    unknown = [d for d in facts.devices if int(f"{d['major']}{d['minor']}") not in nvrtc.archs]
    if unknown:
        names = ", ".join(f"{device['name']} (sm_{device['major']}{device['minor']})" for device in unknown)
        remedy = "install an NVRTC that knows it: an older one for old GPUs, a newer one for new GPUs"
        return Check(name="driver and nvrtc", state="fail", detail=f"{detail} does not know {names}", remedy=remedy)
    return Check(name="driver and nvrtc", state="ok", detail=detail)


def installed_wheels() -> tuple[str, ...]:
    """Which of cupy's wheels are installed."""
    return tuple(name for name in _CUPY_WHEELS if _version_of(name) is not None)


def check_cupy(facts: DriverFacts, wheels: tuple[str, ...]) -> Check:
    """Exactly one cupy where there is a GPU: two wheels overwrite each other's files."""
    if len(wheels) > 1:
        remedy = f"pip uninstall -y {' '.join(wheels)}, then install the one for your driver"
        return Check(name="cupy", state="fail", detail=f"{' and '.join(wheels)} together", remedy=remedy)
    if not facts.devices:
        if wheels:
            return Check(name="cupy", state="ok", detail=f"{wheels[0]} installed")
        remedy = "nothing to do without a GPU"
        return Check(name="cupy", state="absent", detail="not installed", remedy=remedy)
    major = int((facts.cuda_version or "13").split(".")[0])
    wanted = f"cupy-cuda{min(max(major, 12), 13)}x"
    if not wheels:
        return Check(name="cupy", state="fail", detail="not installed", remedy=f"pip install {wanted}")
    if wheels[0] == "cupy-cuda13x" and major < 13:
        detail = f"{wheels[0]} with a driver for CUDA {facts.cuda_version}"
        remedy = f"pip uninstall -y {wheels[0]} && pip install {wanted}"
        return Check(name="cupy", state="fail", detail=detail, remedy=remedy)
    return Check(name="cupy", state="ok", detail=f"{wheels[0]} {_version_of(wheels[0])}")


def check_emulator() -> Check:
    """The PTX emulator can be imported."""
    try:
        found = importlib.util.find_spec(f"{_EMULATOR}.backend")
        if found is not None:
            importlib.import_module(f"{_EMULATOR}.backend")
    except ImportError as error:
        return Check(name="emulator", state="fail", detail=str(error), remedy="reinstall warpsmith")
    if found is None:
        return Check(
            name="emulator",
            state="fail",
            detail="not part of this installation",
            remedy="reinstall warpsmith",
        )
    return Check(name="emulator", state="ok", detail="ready")


def check_writable(name: str, folder: Path, *, remedy: str) -> Check:
    """A file can be made in the folder or, where it is not there yet, in its nearest parent."""
    place = _existing(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(name=name, state="fail", detail=f"{folder}: {error.strerror}", remedy=remedy)
    return Check(name=name, state="ok", detail=str(folder))


def check_disk(name: str, folder: Path, usage: Callable[[Path], int] | None = None) -> Check:
    """Free space where the folder lies; `usage` gives it in bytes (default: the file system's answer)."""
    free = usage(folder) if usage else shutil.disk_usage(_existing(folder)).free
    detail = f"{free / 1e9:.1f} GB free"
    if free < FREE_FAIL:
        return Check(name=name, state="fail", detail=detail, remedy=f"free some space below {_existing(folder)}")
    if free < FREE_WARN:
        return Check(name=name, state="warn", detail=detail, remedy=f"free some space below {_existing(folder)}")
    return Check(name=name, state="ok", detail=detail)


def check_profiler(facts: DriverFacts) -> Check:
    """Nsight Compute, which gives hardware counters on a GPU."""
    if not facts.devices:
        remedy = "nothing to do without a GPU: the emulator counts"
        return Check(name="ncu", state="absent", detail="not looked for without a GPU", remedy=remedy)
    found = counters_ncu.probe()
    if isinstance(found, counters_ncu.Ncu):
        return Check(name="ncu", state="ok", detail=f"{found.path}; nothing forbids reading counters")
    remedy = f"{found.remedy}; static figures are used without it"
    return Check(name="ncu", state="warn", detail=found.message, remedy=remedy)


def _nvrtc_or_none() -> Nvrtc | None:
    try:
        return load_nvrtc()
    except WarpsmithError:
        return None


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _existing(folder: Path) -> Path:
    """The folder, or the nearest parent that exists."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return place if os.access(place, os.F_OK) else Path("/")
