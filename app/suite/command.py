"""`warpsmith bench`: opens or makes the suite's folder, runs the schedule, leaves results and says what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from warpsmith.app.commit import commit
from warpsmith.app.cores import default_jobs, usable_cores
from warpsmith.app.display import Display
from warpsmith.app.ending import explained, interrupt_code, interrupt_says
from warpsmith.app.suite.files import write_files
from warpsmith.app.suite.folder import SuiteFolder
from warpsmith.app.suite.lanes import Lane, LaneProcess
from warpsmith.app.suite.order import todo
from warpsmith.app.suite.presence import FILE, wait_until_gone
from warpsmith.app.suite.problems import find_problems, parse_choice
from warpsmith.app.suite.records import SuiteManifest, SuiteProblem
from warpsmith.app.suite.resume import changed, require_files
from warpsmith.app.suite.schedule import Schedule
from warpsmith.app.suite.settings import SuiteSettings, as_before, refuse_early, refuse_other
from warpsmith.app.suite.show import SuiteRich, Watcher
from warpsmith.app.suite.wire import Setup
from warpsmith.app.suite.words import summary_text
from warpsmith.app.wording import count
from warpsmith.kernels.errors import EnvironmentError_, UserError, WarpsmithError
from warpsmith.kernels.records import SCHEMA_VERSION
from warpsmith.sandbox.cuda.lock import give_back, take
from warpsmith.tools.measurement.baseline_records import BaselineFolder
from warpsmith.tools.runs.store import utc_now

GPU_LANES = 12
"""Problems under way on one GPU: a few hold it, the others are read, traced and compiled meanwhile."""
CPU_LANES = 4
_STEP_S = 5.0
NOTHING_VERIFIED, BUDGET_ENDED = 1, 3


More = Callable[[Path], tuple[dict[str, Any], str]]
"""What else is told of a suite run's folder: names of the document, and lines for a reader."""


def run_bench(settings: SuiteSettings, display: Display, more: More | None = None) -> int:
    """Runs the command and shows the result; returns the exit code."""
    if settings.resume is None:
        refuse_early(settings)
    fresh = settings.resume is None
    folder, settings = opened(settings)
    where = f"everything finished so far is kept; go on with --resume {folder.folder}"
    with folder, _cleared(folder, fresh=fresh), _says_how_to_go_on(folder), interrupt_says(where):
        manifest = folder.manifest()
        again = {problem.key for problem in todo(folder, manifest, settings.retry)}
        ended = [row.status for key, row in folder.rows.items() if key not in again]
        watcher = Watcher(display, len(manifest.problems), ended)
        if isinstance(display, SuiteRich):
            display.watcher = watcher
        for note in changed(manifest, folder.rows, again):
            watcher.note(note)
        display.phase(f"{count(len(manifest.problems), 'problem')} in {folder.folder}")
        lanes = _lanes(settings, folder.folder)
        schedule = Schedule(folder, settings, lanes, watcher, str(_baselines(settings)))
        try:
            with only_suite(_gpus(settings), display):
                heard = asyncio.run(_run(schedule))
        finally:
            summary = write_files(folder.folder, folder.manifest(), folder.rows, folder.baselines)
        document = _document(folder, schedule, summary)
        told, text = more(folder.folder) if more is not None else ({}, "")
        display.result(document | told, "\n".join(filter(None, (summary_text(document), text))))
        return _exit_code(schedule, summary, heard)


@contextlib.contextmanager
def _cleared(folder: SuiteFolder, *, fresh: bool) -> Iterator[None]:
    """Takes a new folder away again where an error came before anything was begun: there is nothing to go on with."""
    try:
        yield
    except WarpsmithError:
        if fresh and not folder.rows and not folder.began_anything():
            shutil.rmtree(folder.folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def _says_how_to_go_on(folder: SuiteFolder) -> Iterator[None]:
    """What the machine lacks is told together with the way on, once something was begun."""
    try:
        yield
    except (OSError, EnvironmentError_) as error:
        known = error if isinstance(error, EnvironmentError_) else explained(error)
        if not isinstance(known, EnvironmentError_) or "--resume" in str(known) or not folder.began_anything():
            raise
        raise EnvironmentError_(f"{known}; what was finished is kept: --resume {folder.folder}") from error


def opened(settings: SuiteSettings) -> tuple[SuiteFolder, SuiteSettings]:
    """A suite run that is gone on with, or a new one with its manifest."""
    if settings.resume is not None:
        folder = SuiteFolder.open(settings.resume)
        try:
            refuse_other(settings, folder.manifest().config, settings.resume)
            kept = as_before(settings, folder.manifest().config, settings.resume)
            refuse_early(kept)
            manifest = folder.manifest()
            if settings.targets:
                manifest = moved(manifest, settings.targets)
            if "max_autotune" in settings.given:
                manifest = manifest.model_copy(update={"autotuned": tuned(manifest.problems, settings.max_autotune)})
            command = "rollout" if settings.rollout else "bench"
            require_files(todo(folder, manifest, settings.retry), settings.resume, command)
            if manifest != folder.manifest():
                folder.write_manifest(manifest)
            return folder, kept
        except BaseException:
            folder.close()
            raise
    problems = find_problems(settings.targets, parse_choice(settings.level, settings.ids, settings.filters))
    name = Path(settings.targets[0]).resolve().stem
    folder = SuiteFolder.create(name, settings.out, command="rollout" if settings.rollout else "bench")
    folder.write_manifest(
        SuiteManifest(
            suite_id=folder.folder.name, created=utc_now(), config=settings.config(), problems=problems,
            commit=commit(), autotuned=tuned(problems, settings.max_autotune),
        )
    )  # fmt: skip
    return folder, settings


def moved(manifest: SuiteManifest, targets: tuple[str, ...]) -> SuiteManifest:
    """The manifest with its problems where they lie now, on another machine or in another folder. UserError where one
    of them is not among the targets."""
    found = {problem.key: problem for problem in find_problems(targets)}
    lacking = [problem.key for problem in manifest.problems if problem.key not in found]
    if lacking:
        raise UserError(
            f"{' '.join(targets)} lacks {len(lacking)} of the suite's problems ({', '.join(lacking[:3])}, ...): name "
            "the same files in their new place, or leave SUITE out"
        )
    there = (found[problem.key].model_copy(update={"digest": problem.digest}) for problem in manifest.problems)
    return manifest.model_copy(update={"problems": tuple(there)})


def tuned(problems: tuple[SuiteProblem, ...], number: int) -> tuple[str, ...]:
    """The sample on which max-autotune is measured: as many of each level as its share, drawn by a hash of the key, so
    that nobody chose them and everybody draws the same."""
    if not number:
        return ()
    drawn: list[tuple[float, str]] = []
    for level in {problem.level for problem in problems}:
        keys = sorted(
            (problem.key for problem in problems if problem.level == level),
            key=lambda key: hashlib.sha256(key.encode()).hexdigest(),
        )
        # The k-th of n lies at (k + 1/2) / n: the smallest of all levels together are a share of each.
        drawn += [((place + 0.5) / len(keys), key) for place, key in enumerate(keys)]
    chosen = {key for _, key in sorted(drawn)[:number]}
    return tuple(problem.key for problem in problems if problem.key in chosen)


def _baselines(settings: SuiteSettings) -> Path:
    return (BaselineFolder(settings.baselines).folder).absolute()


def _lanes(settings: SuiteSettings, folder: Path) -> list[Lane]:
    """As many as cores and GPUs allow, spread over the GPUs; none is started yet."""
    jobs = settings.jobs or default_jobs()
    found = _gpus(settings)
    on_gpu = bool(found)
    gpus: tuple[int | None, ...] = (settings.gpus or (None,)) if on_gpu else (None,)
    if settings.gpus and not on_gpu:
        raise EnvironmentError_("no usable NVIDIA GPU here: `warpsmith doctor` says why; or leave --gpus out")
    # Without a GPU every lane has emulators that want cores; with one, most lanes wait.
    most = min(len(gpus) * GPU_LANES, usable_cores() * 3 // 4) if on_gpu else min(CPU_LANES, usable_cores() // 2)
    number = settings.workers or max(1, most)
    lanes = -(-number // len(gpus))
    setup = Setup(
        device=settings.device, arch=settings.arch, seats=settings.seats if on_gpu else 1, lanes=lanes,
        policy=settings.policy, price=settings.price,
        capped=settings.max_cost is not None or settings.problem_max_cost is not None,
        jobs=max(2, jobs // (lanes * len(gpus))) if on_gpu else max(1, jobs // number),
        presence=str((folder / FILE).absolute()),
    )  # fmt: skip
    wait_until_gone(folder / FILE)
    logs = folder / "logs"
    return [LaneProcess(n, setup, logs / f"lane{n}.log", gpu=gpus[n % len(gpus)]) for n in range(number)]


def _gpus(settings: SuiteSettings) -> list[str]:
    """The UUIDs of the GPUs that are wanted and there; none where candidates run in the emulator."""
    from warpsmith.sandbox.cuda.driver import DriverError, driver

    if settings.device == "cpu":
        return []
    try:
        return [driver().uuid(number) for number in settings.gpus or (0,)]
    except (DriverError, EnvironmentError_, OSError):
        return []


@contextlib.contextmanager
def only_suite(uuids: Sequence[str], display: Display) -> Iterator[None]:
    """One suite at a time works on a GPU: what one compiles would disturb what another times."""
    with contextlib.ExitStack() as held:
        for uuid in sorted(uuids):
            while (handle := take(uuid, purpose="suite")) is None:
                display.phase("another suite has the GPU; waiting for it to end")
                time.sleep(_STEP_S)
            held.callback(give_back, handle)
        yield


async def _run(schedule: Schedule) -> str | None:
    """The schedule, with signals: the first stops it in order, the next ends it at once. The first one's name."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    names: list[str] = []

    def heard(number: int) -> None:
        names.append(signal.Signals(number).name)
        if len(names) > 1:
            task.cancel()
            return
        schedule.show.note("stopping after the steps under way; Ctrl-C once more stops at once")
        schedule.ask_to_stop("interrupted")

    with _handled(loop, heard):
        try:
            await schedule.run()
        except asyncio.CancelledError:
            if len(names) < 2:
                raise
    return names[0] if names else None


@contextlib.contextmanager
def _handled(loop: asyncio.AbstractEventLoop, heard: Callable[[int], None]) -> Iterator[None]:
    """What a parent ignores stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, heard, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def _document(folder: SuiteFolder, schedule: Schedule, summary: dict[str, Any]) -> dict[str, Any]:
    """The one JSON document of `--json`."""
    manifest = folder.manifest()
    return {
        "schema_version": SCHEMA_VERSION, "suite": str(folder.folder), "device": manifest.device,
        "complete": summary["open"] == 0, "stop": schedule.stop, "stuck": schedule.stuck, **summary,
    }  # fmt: skip


def _exit_code(schedule: Schedule, summary: dict[str, Any], heard: str | None) -> int:
    """As in docs/interface.md."""
    if heard is not None:
        return interrupt_code(heard)
    if summary["statuses"].get("verified") or schedule.settings.baselines_only:
        return 0
    return BUDGET_ENDED if schedule.stop is not None else NOTHING_VERIFIED
