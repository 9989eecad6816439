"""Nsight Compute: whether it may be used here, running it on one launch plan, reading what it wrote."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from warpsmith.kernels.problem import ProblemRef
from warpsmith.kernels.records import CompileReport, KernelStep, LaunchPlan
from warpsmith.sandbox.nursery import scrubbed
from warpsmith.sandbox.spawn import spawn
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.profiling.counters import METRICS
from warpsmith.tools.target import Target
from warpsmith.tools.workers import worker_environment

TIMEOUT_S = 120.0
"""Importing torch under ncu on a cold disk takes most of it; a warm profile takes about 5 s."""
ENOUGH_LAUNCHES = 64
"""Launches that are profiled at most: each is replayed about a dozen times."""
PERMISSION_HELP = (
    "allow it once as root with `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d/ and a "
    "reboot, or run where CAP_SYS_ADMIN is granted"
)

_ERROR = "ERR_NVGPUCTRPERM"
_PARAMS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN = 1 << 21
_PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_UNKNOWN = r"find metric[^\n]*{}(?![\w.])"
_NUMBER = re.compile(r"-?[\d.]+(e[+-]?\d+)?")

Counts = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class NcuRefused:
    """Why there are no hardware counters. Never an error: others take their place."""

    kind: Literal["missing", "permission", "timeout", "failed"]
    message: str
    remedy: str | None = None

    @property
    def text(self) -> str:
        """For a reader: what and the remedy."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    @property
    def tell(self) -> bool:
        """Whether it is worth a warning beside a verdict: a tool that is not installed is not."""
        return self.kind != "missing"


@dataclass(frozen=True, slots=True)
class Ncu:
    """An ncu that may read counters, as far as can be told without running it."""

    path: Path


def find_ncu(search: str | None = None, places: Sequence[str] = _PLACES) -> Path | None:
    """On PATH (or `search`), else where its installers put it, the newest first."""
    found = shutil.which("ncu", path=search)
    if found:
        return Path(found)
    for pattern in places:
        matches = sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
        for match in matches:
            if os.access(match, os.X_OK) and match.is_file():
                return match
    return None


def probe(
    *, search: str | None = None, places: Sequence[str] = _PLACES, cache: Path | None = None,
    params: Path = _PARAMS, status: Path = _STATUS,
) -> Ncu | NcuRefused:  # fmt: skip
    """What this machine allows, before anything is run: the tool, the driver's rule, and what ncu said the last time
    under the same driver, user and capabilities."""
    path = find_ncu(search, places)
    if path is None:
        return NcuRefused("missing", "ncu is not installed", "install Nsight Compute for hardware counters")
    if _admin_only(params) and not _is_admin(status):
        return NcuRefused("permission", "the driver keeps performance counters for administrators", PERMISSION_HELP)
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(_record(cache).read_text())
        if kept.get("key") == _key(path, params, status):
            return NcuRefused("permission", f"ncu was refused ({_ERROR}) on this machine", PERMISSION_HELP)
    return Ncu(path)


def profile(
    plan: LaunchPlan, report: CompileReport, problem: ProblemRef, target: Target, *, timeout_s: float = TIMEOUT_S
) -> Counts | NcuRefused:
    """Raw counts of each kernel of the plan from one run of it in a process of its own, on drawn inputs."""
    allowed = probe()
    if isinstance(allowed, NcuRefused):
        return allowed
    kernels = sorted({step.kernel for step in plan.steps if isinstance(step, KernelStep)})
    if not kernels:
        return NcuRefused("failed", "the plan launches no kernel of its own")
    with tempfile.TemporaryDirectory(prefix="warpsmith-ncu-") as folder:
        payload = Path(folder) / "payload.json"
        # The environment shows the process one device.
        seen = target.model_copy(update={"index": 0})
        parts = {"problem": problem, "target": seen, "plan": plan, "report": report}
        payload.write_text(json.dumps({name: part.model_dump(mode="json") for name, part in parts.items()}))
        runner = [
            sys.executable,
            "-P",
            "-m",
            "warpsmith.tools.profiling.profile_runner",
            str(payload),
            str(os.getpid()),
        ]
        environment = worker_environment(target)
        found = run_ncu(allowed.path, runner, kernels, Path(folder), timeout_s=timeout_s, environment=environment)
        if not isinstance(found, NcuRefused) and not done_mark(payload).exists():
            words = _last_words((Path(folder) / "stderr").read_text(errors="replace"))
            return NcuRefused("failed", f"the plan did not finish under ncu: {words}")
        return found


def done_mark(payload: Path) -> Path:
    """What the runner leaves beside its payload when the plan has run to its end."""
    return payload.with_suffix(".done")


def run_ncu(
    ncu: Path, program: Sequence[str], kernels: Sequence[str], folder: Path, *, timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None, cache: Path | None = None,
) -> Counts | NcuRefused:  # fmt: skip
    """Runs a program under ncu with the table's metrics; one that this ncu does not know is left out."""
    metrics = ncu_metrics()
    while metrics:
        log = folder / "ncu.csv"
        log.unlink(missing_ok=True)
        code, errors = _run([*command(ncu, metrics, kernels, log), *program], folder, timeout_s, environment or {})
        if code is None:
            return NcuRefused("timeout", f"ncu did not finish within {timeout_s:g} s")
        written = log.read_text(errors="replace") if log.exists() else ""
        counts = parse_raw(written)
        if counts:
            return counts
        output = f"{written}\n{errors}"
        refused = refusal(output)
        if refused is not None:
            if refused.kind == "permission":
                _remember(ncu, cache)
            return refused
        unknown = {name for name in metrics if re.search(_UNKNOWN.format(re.escape(name)), output)}
        if not unknown:
            return NcuRefused("failed", f"ncu gave no counts (exit {code}): {_last_words(output)}")
        metrics = tuple(name for name in metrics if name not in unknown)
    return NcuRefused("failed", "this ncu knows none of the metrics")


def ncu_metrics() -> tuple[str, ...]:
    """ncu's names of everything the table needs."""
    names = (name for metric in METRICS if metric.ncu is not None for name in metric.ncu.names)
    return tuple(dict.fromkeys(name for name in names if name != "launches"))


def command(ncu: Path, metrics: Sequence[str], kernels: Sequence[str], log: Path) -> list[str]:
    """The command line up to the program. Clocks float as in timing; caches are flushed before every replay. What ncu
    says goes to a file of its own: device code can print, and must not be read as counts."""
    names = "|".join(re.escape(kernel) for kernel in kernels)
    return [
        str(ncu), "--clock-control", "none", "--cache-control", "all", "--csv", "--page", "raw",
        "--print-units", "base", "--metrics", ",".join(metrics), "--kernel-name", f"regex:^({names})$",
        "--launch-count", str(ENOUGH_LAUNCHES), "--target-processes", "application-only", "--log-file", str(log),
    ]  # fmt: skip


def _run(
    words: Sequence[str], folder: Path, timeout_s: float, environment: Mapping[str, str]
) -> tuple[int | None, str]:
    """Exit code, None after the deadline, and the end of stderr. Whatever it started is gone then."""
    errors = folder / "stderr"
    code: int | None = None
    with errors.open("wb") as sink:
        try:
            child = spawn(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sink,
                env={**scrubbed(os.environ), **environment, "TMPDIR": str(folder)},
            )  # fmt: skip
        except OSError as error:
            return 127, f"{words[0]}: {error.strerror}"
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return code, errors.read_bytes()[-4096:].decode(errors="replace")


def refusal(output: str) -> NcuRefused | None:
    """What ncu's own messages say of a run without counts."""
    if _ERROR in output:
        return NcuRefused("permission", f"ncu may not read performance counters ({_ERROR})", PERMISSION_HELP)
    if "No kernels were profiled" in output:
        return NcuRefused("failed", f"ncu saw none of the plan's kernels: {_last_words(output)}")
    return None


def parse_raw(text: str) -> Counts:
    """Counts by kernel from `--csv --page raw` in base units: one row a launch below a row of units, after whatever
    else was printed. Several launches of a kernel: sums add up, launch properties keep the largest, ratios and
    percentages are averaged by time."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    launches: dict[str, list[dict[str, float]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        # The row of units has no ID; a message that follows the table has nothing else.
        if not (row.get("ID") or "").isdigit() or not row.get("Kernel Name"):
            continue
        cells = {name: _number(cell) for name, cell in row.items() if "__" in (name or "")}
        figures = {name: value for name, value in cells.items() if value is not None}
        launches.setdefault(str(row["Kernel Name"]).split("(")[0].strip(), []).append(figures)
    return {kernel: _joined(rows) for kernel, rows in launches.items() if any(rows)}


def _joined(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """One set of figures for all launches of a kernel."""
    weights = [row.get("gpu__time_duration.sum", 1.0) for row in rows]
    found: dict[str, float] = {"launches": float(len(rows))}
    for name in dict.fromkeys(name for row in rows for name in row):
        pairs = [(row[name], weight) for row, weight in zip(rows, weights, strict=True) if name in row]
        values = [value for value, _ in pairs]
        if name.endswith(".sum"):
            found[name] = sum(values)
        elif name.startswith("launch__"):
            found[name] = max(values)
        else:
            total = sum(weight for _, weight in pairs)
            found[name] = sum(v * w for v, w in pairs) / total if total else sum(values) / len(values)
    return found


def _number(cell: str | None) -> float | None:
    """`12,345.6` or `12 345.6` (narrow spaces) as a number; None for `n/a`, words and empty cells."""
    text = re.sub(r"[,\s\u202f\u00a0]", "", cell or "")
    return float(text) if _NUMBER.fullmatch(text) else None


def _admin_only(params: Path) -> bool:
    with contextlib.suppress(OSError):
        return bool(re.search(r"RmProfilingAdminOnly:\s*1", params.read_text()))
    return False


def _is_admin(status: Path) -> bool:
    """Whether this process has CAP_SYS_ADMIN, which is what the driver asks for; root in a container may not."""
    with contextlib.suppress(OSError, ValueError):
        found = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
        return bool(found and int(found[1], 16) & _CAP_SYS_ADMIN)
    return False


def _record(cache: Path | None) -> Path:
    return (cache or default_cache_dir()) / "ncu_refused.json"


def _key(ncu: Path, params: Path, status: Path) -> list[str | bool | int]:
    """What a refusal depends on: another user, driver, rule or boot may be allowed."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    version = ""
    with contextlib.suppress(OSError):
        version = Path("/proc/driver/nvidia/version").read_text()
    return [str(ncu.resolve()), boot, version, os.getuid(), _admin_only(params), _is_admin(status)]


def _remember(ncu: Path, cache: Path | None) -> None:
    """Keeps a refusal, so that the next run does not ask again; a cache that cannot be written changes nothing."""
    path = _record(cache)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"key": _key(ncu, _PARAMS, _STATUS)}))


def _last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith('"')]
    return lines[-1][:300] if lines else "no message"
