"""Role agents against one agent on recorded tables: what teams, credit, noise and warm starts are worth.

usage: python benchmarks/agents_study.py --tables DIR --searches FILE.jsonl [--table NAME ...] [--seed 0] [--seeds 5]
           [--from NAME --onto NAME] [--out docs/results/agents_study.md]

Every search is a line of FILE.jsonl; one that is there is not run again, so the command may be broken off and
repeated. Searches run one after another with one thread each. The page and its answers are made from the lines, which
say with what they were made.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import agents_study_page as page
from made import made as with_what

from warpsmith.agents.policy import Policy, Trial
from warpsmith.agents.recorded import TableSpace
from warpsmith.agents.registry import make_policy
from warpsmith.agents.search.transfer import TransferPolicy
from warpsmith.agents.slots.policy import SlotPolicy
from warpsmith.agents.slots.sampling import role_entropy
from warpsmith.agents.slots.specialist import Specialist
from warpsmith.agents.space import SearchSpace
from warpsmith.rl.replay import curve, replay
from warpsmith.rl.single import one_agent
from warpsmith.rl.slots.training import TrainSettings, train, trainee
from warpsmith.tools.tables.folder import read_table, table_files, table_name
from warpsmith.tools.tables.table import Table

AT = (10, 25, 50, 100, 200, 300)
NEAR = 0.95
THREE = ("convolution_A100", "gemm_clblast_RTX3090", "pnpoly_RTX3090")
TRAINING = TrainSettings(view="all", disturb="targeted", searches=4, budget=200, seed=1000)
"""Of the specialist that the warm start begins from; its seeds take no part in the comparison."""

TEAM = TrainSettings(view="own", disturb="targeted")
ALL = TrainSettings(view="all", disturb="targeted")
SETTINGS: dict[str, TrainSettings] = {
    "team, shared credit": TEAM,
    "team, counterfactual credit": replace(TEAM, arm="counterfactual"),
    "team, PPO": replace(TEAM, algorithm="ppo"),
    "team that sees each other": ALL,
    "single agent": ALL,
    "single agent, PPO": replace(ALL, algorithm="ppo"),
    "team, uniform noise": replace(TEAM, disturb="uniform"),
    "team, no noise": replace(TEAM, disturb="none"),
}
RANDOM = "random"


def main() -> None:
    """Runs what is missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--searches", type=Path, required=True)
    parser.add_argument("--table", action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=AT[-1])
    parser.add_argument("--from", dest="source", help="Table that the warm start is trained on.")
    parser.add_argument("--onto", help="Table of another device that it is tried on.")
    parser.add_argument("--note", help="A remark for the page's head.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = tuple(options.table or THREE)
    files = {table_name(path): path for path in table_files(options.tables)}
    tables = {name: read_table(files[name]) for name in names}
    seeds = range(options.seed, options.seed + options.seeds)
    at = tuple(n for n in AT if n <= options.budget)
    lines = page.read(options.searches)
    with options.searches.open("a") as file:

        def keep(line: dict[str, Any]) -> None:
            line["made"] = with_what()
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()

        known = {(x["arm"], x["table"], x["seed"]) for x in lines}
        for line in _missing(tables, seeds, at, known):
            keep(line)
        if options.onto is not None:
            for line in _warmed(read_table(files[options.source]), read_table(files[options.onto]), seeds, at, known):
                keep(line)
    if options.out is not None:
        warm = (options.source, options.onto) if options.onto else None
        options.out.write_text(page.text(lines, tables, seeds, at, warm, options.note))


def _missing(
    tables: dict[str, Table], seeds: range, at: Sequence[int], known: set[tuple[str, str, int]]
) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        for name, table in tables.items():
            if (RANDOM, name, seed) not in known:
                yield _line(RANDOM, table, seed, at, make_policy("random"))
            for arm, settings in SETTINGS.items():
                if (arm, name, seed) not in known:
                    yield _line(arm, table, seed, at, trainee(settings, ()))


def _warmed(
    source: Table, onto: Table, seeds: range, at: Sequence[int], known: set[tuple[str, str, int]]
) -> Iterator[dict[str, Any]]:
    """Cold, warm and transfer arms on a table of another device."""
    start: list[Specialist] = []

    def warm() -> Policy:
        if not start:
            start.extend(done.specialist for done in train(source, TRAINING))
        return trainee(ALL, (start[-1],))

    arms: dict[str, Callable[[], Policy]] = {
        "cold": lambda: trainee(ALL, ()),
        "warm": warm,
        "transfer": lambda: TransferPolicy((source,)),
        "onto random": lambda: make_policy("random"),
    }
    for seed in seeds:
        for arm, made in arms.items():
            if (arm, onto.name, seed) not in known:
                yield _line(arm, onto, seed, at, made())


def _line(arm: str, table: Table, seed: int, at: Sequence[int], policy: Policy) -> dict[str, Any]:
    """One search: shares of the optimum, entropies by role, and what the rounds of noise brought."""
    single = arm.startswith("single")
    trials = replay(table, policy, budget=at[-1], seed=seed, single=single)
    found: dict[str, Any] = {"arm": arm, "table": table.name, "seed": seed, "at": list(at)}
    found |= {"share": curve(table, trials, at).tolist(), "near": _evaluations_to(table, trials)}
    found |= {"escapes": escapes(trials)}
    if isinstance(policy, SlotPolicy):
        found["entropy"] = entropies(policy, one_agent(TableSpace(table)) if single else TableSpace(table), trials, at)
    return found


def entropies(
    policy: SlotPolicy, space: SearchSpace, trials: Sequence[Trial], at: Sequence[int]
) -> list[dict[str, float]]:
    """Entropy of each role's decisions over the uniform one's, after so many of a search's evaluations."""
    again = SlotPolicy(policy.specialists, policy.name, policy.view, policy.settings, policy.worth)
    found = []
    for count in at:
        learner = again.learnt(space, tuple(trials[:count]))
        found.append(role_entropy(learner.layout, learner.weights))
    return found


def _evaluations_to(table: Table, trials: Sequence[Trial]) -> int | None:
    """Evaluations until the best is within 5 % of the optimum; None where that did not come."""
    for count, trial in enumerate(trials, 1):
        if trial.cost is not None and table.optimum_us / trial.cost >= NEAR:
            return count
    return None


def escapes(trials: Sequence[Trial]) -> dict[str, int]:
    """Evaluations of escape rounds, and how many of them became the best."""
    best, told, better = float("inf"), 0, 0
    for trial in trials:
        told += trial.kind == "escape"
        if trial.cost is not None and trial.cost < best:
            better += trial.kind == "escape"
            best = trial.cost
    return {"evaluations": told, "improved": better}


if __name__ == "__main__":
    main()
