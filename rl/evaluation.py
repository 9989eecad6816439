"""Evaluation on recorded tables: the curves of a policy over seeds, and their means with standard errors."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.registry import make_policy
from warpsmith.rl.replay import curve, replay
from warpsmith.tools.tables.folder import read_table, table_name
from warpsmith.tools.tables.table import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    """What is evaluated, and how."""

    policy: str
    files: tuple[Path, ...]
    seeds: tuple[int, ...]
    at: tuple[int, ...]
    """Evaluations after which the best is looked at, ascending; the last is the budget."""
    batch: int = 1
    """Proposals a round."""
    jobs: int = 1
    """Processes side by side."""
    single: bool = False
    """Whether one agent owns all slots: the arm that teams of roles are compared with."""


@dataclass(frozen=True, slots=True)
class Score:
    """Optimum over best found, by the number of evaluations; 1 is the optimum."""

    mean: Mapping[int, float]
    error: Mapping[int, float]
    """Standard error over the seeds; NaN for a single one."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The curves of a policy."""

    settings: Settings
    curves: Mapping[str, Floats]
    """Table -> (seeds, len(at))."""

    def table(self, name: str) -> Score:
        """The score on one table."""
        return self._score(self.curves[name])

    def overall(self) -> Score:
        """The mean of all tables, each with the same weight; its error is that of the seeds' means."""
        return self._score(np.mean(np.stack(list(self.curves.values())), axis=0))

    def _score(self, curves: Floats) -> Score:
        n = len(curves)
        errors = curves.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(curves.shape[1], np.nan)
        at = self.settings.at
        return Score(
            dict(zip(at, curves.mean(axis=0).tolist(), strict=True)), dict(zip(at, errors.tolist(), strict=True))
        )


Heard = Callable[[str, int], None]
"""Called after each search with the table's name and the number of searches done."""


def evaluate(settings: Settings, heard: Heard) -> Evaluation:
    """Runs every seed on every table. The same settings give the same curves, whatever the number of processes."""
    curves = {table_name(path): np.zeros((len(settings.seeds), len(settings.at))) for path in settings.files}
    for done, (path, row, found) in enumerate(_searches(settings), 1):
        curves[table_name(path)][row] = found
        heard(table_name(path), done)
    return Evaluation(settings, curves)


def _searches(settings: Settings) -> Iterator[tuple[Path, int, Floats]]:
    """File, place of the seed, and the curve of each search, in the order in which they end."""
    work = [(path, row) for path in settings.files for row in range(len(settings.seeds))]
    if settings.jobs == 1:
        for path, row in work:
            yield path, row, _search(settings, path, settings.seeds[row])
        return
    # Forked processes would share the threads' locks of numerical libraries.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(settings.jobs, len(work)), context, initializer=_ignore_interrupts) as pool:
        running = {pool.submit(_search, settings, path, settings.seeds[row]): (path, row) for path, row in work}
        try:
            for future in as_completed(running):
                yield *running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _search(settings: Settings, path: Path, seed: int) -> Floats:
    table, policy = _table(path), make_policy(settings.policy)
    trials = replay(table, policy, budget=settings.at[-1], seed=seed, batch=settings.batch, single=settings.single)
    return curve(table, trials, settings.at)


@functools.cache
def _table(path: Path) -> Table:
    return read_table(path)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
