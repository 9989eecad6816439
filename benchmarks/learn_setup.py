"""The study of benchmarks/learn_study.py: its document, its lines, and the recorded spaces as tasks."""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from made import versions
from train_arms import changed

from warpsmith.agents.resources import PolicyResources, problem_text
from warpsmith.app.workbench import open_bench, specs_of
from warpsmith.kernels.errors import UserError
from warpsmith.rl.rewards.settings import RewardSettings, settings_of
from warpsmith.rl.tasks.spaces import Advised, RecordedSpace, SpaceTask
from warpsmith.rl.train.settings import TrainSettings, train_settings
from warpsmith.tools.tables.folder import read_table, table_files, table_name

LEAST = 16
"""Combinations below which a recorded space is left out."""
_VERSIONED = ("torch", "transformers", "peft", "numpy", "optuna", "warpsmith")


@dataclass(frozen=True)
class Study:
    """A document, checked."""

    train: TrainSettings
    rewards: RewardSettings
    trained: tuple[str, ...]
    near: tuple[str, ...]
    far: tuple[str, ...]
    random: int
    replies: int
    searches: int
    evaluations: int

    @property
    def unseen(self) -> tuple[str, ...]:
        """Problems that are never trained on."""
        return self.near + self.far

    def split(self, problem: str) -> str:
        """`trained`, `near` or `far`."""
        return next(kind for kind in ("trained", "near", "far") if problem in getattr(self, kind))


def read_study(path: Path, model: Path, settings: Sequence[str], seed: int = 0) -> Study:
    """From a TOML file; `settings`: KEY=VALUE in place of its own. UserError names what is wrong."""
    given: dict[str, Any] = changed(tomllib.loads(path.read_text("utf-8")), [*settings, f"seed={seed}"])
    own, rewards = given.pop("study"), settings_of(given.pop("rewards", {}))
    given["model"] = given.get("model", {}) | {"path": str(model.resolve())}
    splits = {name: tuple(own.pop(name)) for name in ("trained", "near", "far")}
    every = [name for names in splits.values() for name in names]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise UserError(f"{path}: {twice[0]} is named twice: a problem is trained on or never seen")
    return Study(train_settings(given, str(path)), rewards, **splits, **own)


@dataclass(frozen=True)
class Place:
    """Where things lie."""

    spaces: Path
    """As benchmarks/record_space.py writes them, below `tables`."""
    problems: Path
    """Folder of the problems' files."""
    arch: str
    """Architecture that the spaces were recorded on: what the cost model is asked for."""

    def found(self, names: Sequence[str]) -> dict[str, Path]:
        """Problem -> its table, where one was recorded."""
        files = {table_name(path).rpartition("-")[0]: path for path in table_files(self.spaces)}
        return {name: files[name] for name in names if name in files}

    def tasks(self, names: Sequence[str], study: Study, *, advised: bool = True) -> dict[str, SpaceTask]:
        """Problem -> its task, of those that were recorded with enough combinations."""
        found = {name: self._task(name, path, study, advised) for name, path in self.found(names).items()}
        return {name: task for name, task in found.items() if len(task.space.points) >= LEAST}

    def _task(self, name: str, path: Path, study: Study, advised: bool) -> SpaceTask:
        bench = open_bench(
            str(self.problems / f"{name}.py"), device="cpu", arch=self.arch, overrides={}, inputs=None, mode="eval",
            jobs=1,
        )  # fmt: skip
        specs = specs_of(bench)
        table, told = read_table(path), json.loads(path.read_text())["metadata"]["warpsmith"]
        if told["problem_hash"] != bench.problem.hash or told["family"] not in specs:
            raise UserError(f"{path}: was recorded of another problem than {name}.py, or by a family that is no more")
        fixed = {one: value for one, value in told["naive"].items() if one not in {slot.name for slot in table.slots}}
        kind = Advised if advised else RecordedSpace
        text = problem_text(bench.plan(), bench.graph, bench.floor_us or 0.0)
        resources = PolicyResources(_nobody, lambda kind, data: None, bench.machine.model, text)
        return SpaceTask(kind(specs[told["family"]], table, fixed), resources, study.rewards, study.random)


class Lines:
    """What is known already, one JSON line each; a run that was broken off goes on behind them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text() if path.exists() else ""
        # A line that was torn by the end of a run is made anew.
        whole = [line for line in text.split("\n")[:-1] if line]
        path.parent.mkdir(parents=True, exist_ok=True)
        if text and not text.endswith("\n"):
            path.write_text("".join(f"{line}\n" for line in whole))
        self.all: list[dict[str, Any]] = [json.loads(line) for line in whole]

    def of(self, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        """Lines of a kind with these entries."""
        return [one for one in self.all if one["kind"] == kind and all(one.get(k) == v for k, v in wanted.items())]

    def add(self, kind: str, **entries: Any) -> None:
        """Writes one at once."""
        line = {"kind": kind, **entries}
        self.all.append(line)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_lines(folder: Path) -> Lines:
    """All lines of a study; what is added goes to its own file."""
    lines = Lines(folder / "study.jsonl")
    for path in sorted(folder.glob("*/replies.jsonl")):
        lines.all += Lines(path).all
    return lines


def machine() -> dict[str, Any]:
    """Where this runs, and with what."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "python": platform.python_version(), "versions": versions(_VERSIONED)}


def _nobody(address: Any) -> Any:
    raise ValueError("questions are answered by the model that is trained")
