"""Baselines of one problem: looked up by what they depend on, else compiled and timed, in a process of their own or in
the one that judges the problem's candidates."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from warpsmith.app.display import Display
from warpsmith.app.suite.desk import Desk
from warpsmith.app.suite.wire import BaselineJob, Reply
from warpsmith.app.workbench import Bench
from warpsmith.kernels.errors import EnvironmentError_, SandboxError, UserError
from warpsmith.sandbox.cuda.facts import identity
from warpsmith.sandbox.worker import Worker
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.lease import Lease
from warpsmith.tools.measurement.baseline_jobs import Timed, out_of_memory
from warpsmith.tools.measurement.baseline_records import (
    MAX_AUTOTUNE,
    BaselineFolder,
    BaselineKey,
    BaselineRecord,
)
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.runs.store import utc_now
from warpsmith.tools.workers import COMPILE_THREADS, preload_modules, worker_environment

_TIMEOUT_S = 600.0
_AUTOTUNE_S = 840.0
"""Less than the silence after which a lane is taken for lost."""
Call = Callable[[Bench, str, list[str]], Coroutine[Any, Any, Any]]
"""Runs a job (its name, the modes) for a problem in a worker process."""
_JOBS = "warpsmith.tools.measurement.baseline_jobs"


def measure(job: BaselineJob, desk: Desk, display: Display, call: Call | None = None) -> Reply:
    """The records of a problem's modes (`time`), or warm caches (`compile`). A problem that is refused here is refused
    by its search, which says why; a process that fails leaves its modes unmeasured. `call` stands for the worker."""
    call = call or partial(_call, display)
    try:
        bench = desk.bench(job.problem.path, job.problem.overrides, job.mode)
    except UserError:
        return Reply()
    keys = {mode: key_of(bench, mode) for mode in job.modes}
    folder = BaselineFolder(Path(job.folder))
    known = {mode: found for mode, key in keys.items() if (found := folder.get(key)) is not None}
    with desk.memory(bench, last=job.last) as fits:
        if not fits:
            return Reply(baselines=tuple(known.values()), short_of_memory=True)
        try:
            if job.kind == "compile":
                cold = [mode for mode in keys if not _is_warm(keys[mode])]
                return _compiled(bench, cold, keys, display, call)
            missing = [mode for mode in keys if mode not in known]
            if not missing:
                return Reply(baselines=tuple(known.values()))
            display.phase(f"timing {', '.join(missing)}")
            timed = [Timed.model_validate(one) for one in asyncio.run(call(bench, "time_job", missing))]
        except UserError as error:
            # What does not fit into a part of the memory may fit into all of it.
            again = job.kind == "time" and not job.last
            return Reply(baselines=tuple(known.values()), short_of_memory=again, failure=None if again else str(error))
        except (EnvironmentError_, SandboxError) as error:
            return Reply(baselines=tuple(known.values()), failure=str(error))
    measured = _kept(timed, keys, folder, give_up=job.last)
    return Reply(baselines=(*known.values(), *measured), short_of_memory=out_of_memory(timed) and not job.last)


@dataclass(slots=True)
class TimedFirst:
    """Times baselines at the beginning of a search; what cannot be timed there stays open."""

    bench: Bench
    modes: tuple[str, ...]
    folder: Path
    last: bool
    """Whether a mode that does not fit into the memory is given up."""
    display: Display
    records: tuple[BaselineRecord, ...] = ()

    async def __call__(self, evaluator: Evaluator) -> None:
        """As a search has its first step done."""
        folder = BaselineFolder(self.folder)
        keys = {mode: key_of(self.bench, mode) for mode in self.modes}
        known = {mode: found for mode, key in keys.items() if (found := folder.get(key)) is not None}
        self.records = tuple(known.values())
        missing = [mode for mode in keys if mode not in known]
        if not missing:
            return
        self.display.phase(f"timing {', '.join(missing)}")
        try:
            timed = await evaluator.time_baselines(missing, timeout_s=_TIMEOUT_S)
        except (UserError, SandboxError):
            return
        self.records = (*self.records, *_kept(timed, keys, folder, give_up=self.last))


def key_of(bench: Bench, mode: str) -> BaselineKey:
    """What a baseline of this problem depends on, on the bench's machine."""
    return BaselineKey(
        problem_hash=bench.problem.hash, device=bench.machine.model.name, driver=bench.machine.driver or "none",
        torch=importlib.metadata.version("torch"), mode=mode,
    )  # fmt: skip


def _compiled(
    bench: Bench, modes: list[str], keys: dict[str, BaselineKey], display: Display, call: Call
) -> Reply:  # fmt: skip
    """Compiles what this machine's cache does not hold yet."""
    if not modes:
        return Reply()
    display.phase(f"compiling {', '.join(modes)}")
    try:
        failed: dict[str, str] = asyncio.run(call(bench, "compile_job", modes))
    except UserError as error:
        failed = dict.fromkeys(modes, str(error))
    for mode in modes:
        if mode not in failed:
            _mark(keys[mode])
    return Reply()


def _kept(
    timed: list[Timed], keys: dict[str, BaselineKey], folder: BaselineFolder, *, give_up: bool
) -> list[BaselineRecord]:
    """Keeps what was measured. What did not fit is left open for another try with more memory, unless it is given
    up."""
    again = out_of_memory(timed) and not give_up
    found = []
    for one in timed:
        if again and one.failure is not None:
            continue
        record = BaselineRecord(
            key=keys[one.mode], at=utc_now(), method=one.method, samples=one.samples, eager=one.eager,
            failure=one.failure, compile_s=one.compile_s, notes=one.notes,
        )  # fmt: skip
        folder.put(record)
        found.append(record)
    return found


async def _call(display: Display, bench: Bench, job: str, modes: list[str]) -> Any:
    """Runs a job in a fresh worker process, which ends with it and gives all memory back."""
    target = bench.machine.target
    payload = {
        "problem": bench.problem.ref.model_dump(mode="json"), "modes": modes,
        "target": target.model_copy(update={"index": 0}).model_dump(mode="json"),
    }  # fmt: skip
    # It tries dozens of kernels an operator, on a sample of problems: more compilers than lanes pay here.
    compilers = {COMPILE_THREADS: "4"} if MAX_AUTOTUNE in modes else {}
    worker = Worker(
        preload=preload_modules(target), environment=worker_environment(target) | compilers,
        policy=runner_policy(target, bench.problem.ref, bench.compiler.cache_dir),
    )  # fmt: skip
    lease = Lease(identity(target.index).uuid)
    async with worker:
        await lease.take(lambda _, data: display.phase(data["text"]))
        try:
            timeout_s = _AUTOTUNE_S if MAX_AUTOTUNE in modes else _TIMEOUT_S
            return await worker.call(f"{_JOBS}:{job}", payload, timeout_s=timeout_s)
        finally:
            lease.give_back()


def _marker(key: BaselineKey) -> Path:
    # Beside the cache that it speaks of: baselines may lie elsewhere and be older than this machine.
    return default_cache_dir() / "compiled" / key.name


def _is_warm(key: BaselineKey) -> bool:
    return key.mode == "eager" or _marker(key).exists()


def _mark(key: BaselineKey) -> None:
    _marker(key).parent.mkdir(parents=True, exist_ok=True)
    _marker(key).touch()
