"""`warpsmith train`: opens the tasks, trains in a folder, and says what came of it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from warpsmith.agents.local.address import find_model
from warpsmith.app.display import Display
from warpsmith.app.ending import NOTHING, Ended, interrupt_code, interrupt_says
from warpsmith.app.suite.problems import find_problems
from warpsmith.app.training.config import CONFIG, TaskSection, TrainConfig, kept_config, read_config, refuse_other
from warpsmith.app.training.judges import Judges
from warpsmith.app.training.progress import Progress
from warpsmith.app.wording import count
from warpsmith.kernels.errors import UserError, WarpsmithError
from warpsmith.kernels.records import SCHEMA_VERSION
from warpsmith.rl.train.ending import Interrupted
from warpsmith.tools.runs.store import acquire, release, room_needed, write_atomically
from warpsmith.tools.tables.folder import read_table, table_files

if TYPE_CHECKING:
    from warpsmith.rl.train.sampler import Source
    from warpsmith.rl.train.task import Asked
    from warpsmith.rl.train.trainer import Trained

_PACKAGES = ("transformers", "accelerate")
LOCK = "run.lock"
COLLAPSED = 1


@dataclass(frozen=True, slots=True)
class TrainCommand:
    """The command's flags."""

    config: Path | None
    resume: Path | None = None
    model: Path | None = None
    steps: int | None = None
    out: Path | None = None
    """Where a new training's folder is made; `runs` by default."""


def run_train(wanted: TrainCommand, display: Display) -> int:
    """Runs the command and shows the result; returns the exit code: 0 where all updates were made, 1 after a collapse,
    130 where it was interrupted."""
    config = _config(wanted)
    _require(config)
    folder = wanted.resume or _new_folder(wanted, config)
    says = f"everything up to the last checkpoint is kept; go on with --resume {folder}"
    fresh = wanted.resume is None
    with (
        room_needed(folder, resumable=True),
        interrupt_says(says),
        _held(folder, fresh=fresh),
        _stops() as heard,
        Judges(
            folder, config.rewards, config.train.seed, display, interrupted=lambda: bool(heard)
        ) as judges,
    ):  # fmt: skip
        try:
            source, held_out = _tasks(config, judges, display)
        except Interrupted:
            text = NOTHING if fresh and _bare(folder) else says
            raise Ended(f"interrupted: {text}", interrupt_code(heard[0])) from None
        _warn(config, judges, display)
        from warpsmith.rl.train.trainer import train

        progress = Progress(display, config.train.steps)
        progress.phase("loading the model")
        ended = train(
            config.train, source, folder, held_out=held_out, interrupted=lambda: bool(heard), heard=progress.update,
            doing=progress.doing,
        )  # fmt: skip
    document = _document(folder, ended, [task.name for task in held_out])
    display.result(document, _text(document))
    if ended.stop == "interrupted":
        return interrupt_code(heard[0])
    return COLLAPSED if ended.stop == "collapse" else 0


def _config(wanted: TrainCommand) -> TrainConfig:
    """The document that is meant; a training that goes on keeps its tasks."""
    more: dict[str, Any] = {"model": wanted.model, "steps": wanted.steps}
    if wanted.resume is None:
        if wanted.config is None:
            raise UserError("name what to train: `warpsmith train CONFIG.toml`, or go on with --resume DIR")
        return read_config(wanted.config, **more)
    if wanted.out is not None and wanted.out.resolve() != wanted.resume.resolve().parent:
        raise UserError(
            f"--out {wanted.out} is given, the training lies in {wanted.resume.resolve().parent}: leave --out out"
        )
    kept = kept_config(wanted.resume, **more)
    if wanted.config is None:
        return kept
    config = read_config(wanted.config, **more)
    refuse_other(config, kept, wanted.config, wanted.resume)
    return config


def _require(config: TrainConfig) -> None:
    """What is missing is told before anything is loaded or judged."""
    lacking = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    wanted = {"peft": config.train.model.lora is not None, "gguf": config.train.model.path.is_file()}
    lacking += [name for name, needed in wanted.items() if needed and importlib.util.find_spec(name) is None]
    if lacking:
        raise UserError(f"training needs {' and '.join(lacking)}: pip install 'warpsmith[train]'")
    try:
        find_model(config.train.model.path)
    except UserError as error:
        said = str(error).removeprefix("--policy local:")
        raise UserError(
            f"model.path: {said} (--model PATH names another; docs/training.md says how to get one)"
        ) from None


def _new_folder(wanted: TrainCommand, config: TrainConfig) -> Path:
    assert wanted.config is not None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", wanted.config.stem).strip("-.")[:40] or "config"
    folder = (wanted.out or Path("runs")) / f"{stamp}-train-{name}-{secrets.token_hex(3)}"
    with room_needed(folder):
        folder.mkdir(parents=True)
        write_atomically(folder / CONFIG, (json.dumps(config.document, indent=1, default=str) + "\n").encode())
    return folder


@contextlib.contextmanager
def _held(folder: Path, *, fresh: bool) -> Iterator[None]:
    """One process at a time trains in a folder. UserError where another one does. A training that could not be begun
    leaves no folder where this call made it (`fresh`)."""
    lock = acquire(folder)
    try:
        yield
    except WarpsmithError:
        if fresh and _bare(folder):
            shutil.rmtree(folder)
        raise
    finally:
        release(folder, lock)


def _bare(folder: Path) -> bool:
    """Whether nothing but the document is in a training's folder."""
    return {path.name for path in folder.iterdir()} <= {CONFIG, LOCK}


def _tasks(config: TrainConfig, judges: Judges, display: Display) -> tuple[Source, Sequence[Asked]]:
    """Where batches come from, and what is held out."""
    from warpsmith.rl.tasks.collected import as_earned, collected
    from warpsmith.rl.tasks.scoring import ranked_within
    from warpsmith.rl.train.rejudge import HackWatch
    from warpsmith.rl.train.sampler import Collected, LiveTasks, advantage_rule

    settings, source = config.train, config.tasks
    found: Source
    if source.trajectories:
        display.phase("reading what was collected")
        model = find_model(settings.model.path).endpoint().base_url
        read = collected([Path(one) for one in source.trajectories], config.rewards, model=model, arm=source.credit)
        if not read.groups:
            raise UserError(f"tasks.trajectories: {read.why_empty()}")
        if settings.stage == "offline" and read.flat and not (settings.loss.kl or settings.loss.entropy):
            raise UserError(f"tasks.trajectories: {read.why_flat()}")
        display.phase(f"{len(read.groups)} groups from {read.candidates} candidates")
        found = Collected(read.groups, settings.sampling, advantage_rule(settings, as_earned), settings.seed)
    else:
        rule = advantage_rule(settings, ranked_within(config.rewards))
        doubts = HackWatch(settings.watch.rejudge) if settings.watch.rejudge else None
        found = LiveTasks(_live(source, config, judges), settings.sampling, rule, settings.seed, watch=doubts)
    held_out = _live(config.held_out, config, judges) if config.held_out is not None else []
    return found, held_out


def _live(section: TaskSection, config: TrainConfig, judges: Judges) -> list[Asked]:
    """Tables first, then problems. UserError where two have one name."""
    from warpsmith.rl.tasks.recorded import table_task, table_team

    found: list[Asked] = []
    for name in section.tables:
        path = Path(name)
        for file in [path] if path.is_file() else table_files(path):
            table = read_table(file)
            if section.agents == "team":
                found.append(table_team(table, config.rewards, section.random, section.credit))
            else:
                found.append(table_task(table, config.rewards, section.random))
    if section.problems:
        for problem in find_problems(section.problems):
            found += judges.tasks(problem, section)
    names = [task.name for task in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{twice[0]} is named twice: leave one out")
    return found


def _warn(config: TrainConfig, judges: Judges, display: Display) -> None:
    if config.train.overlap.max_lag and any(device.startswith("gpu:") for device in judges.devices):
        display.note(
            "updates run while candidates are timed, which disturbs times on one GPU; [overlap] max_lag = 0 takes turns"
        )


@contextlib.contextmanager
def _stops() -> Iterator[list[str]]:
    """The first signal ends the training behind its update, or what else is under way, with a checkpoint; the next one
    ends it at once."""
    heard: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in numbers}

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(signal.Signals(number).name)
        for one in numbers:
            signal.signal(one, before[one])

    for number in numbers:
        signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _document(folder: Path, ended: Trained, held_out: Sequence[str]) -> dict[str, Any]:
    """The one JSON document of `--json`. Figures that are no numbers are null."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = [
        {name: value for name, value in line.items() if name == "step" or name.startswith("eval/")}
        for line in lines if any(name.startswith("eval/") for name in line)
    ]  # fmt: skip
    return {
        "schema_version": SCHEMA_VERSION, "training": str(folder), "step": ended.step, "stop": ended.stop,
        "policy": str(ended.policy), "held_out": list(held_out), "evaluations": evaluations,
        "figures": {name: value if math.isfinite(value) else None for name, value in ended.figures.items()},
    }  # fmt: skip


def _text(document: dict[str, Any]) -> str:
    how = {"steps": "all updates made", "collapse": "stopped by the watch", "interrupted": "interrupted"}
    lines = [f"{count(document['step'], 'update')}, {how[document['stop']]}: {document['policy']}"]
    if (found := document["evaluations"]) and "eval/percentile" in found[-1]:
        told = [f"{one['eval/percentile']:.3f} at update {one['step']}" for one in (found[0], found[-1])]
        tasks = count(len(document["held_out"]), "held-out task")
        lines.append(f"  mean percentile on {tasks}: {', '.join(dict.fromkeys(told))}")
    if document["stop"] == "interrupted":
        lines.append(f"go on with --resume {document['training']}")
    return "\n".join(lines)
