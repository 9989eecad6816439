"""Replies of models and searches of policies on recorded spaces: the lines that the study's figures are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from learn_setup import Lines, Place, Study

from warpsmith.agents.play import play
from warpsmith.agents.registry import make_policy
from warpsmith.agents.space import Grid
from warpsmith.kernels.slots import Values
from warpsmith.rl.tasks.spaces import RecordedSpace, SpaceTask

SEARCHES = ("random", "tpe", "builtin")
MODEL = "cost model"
FIRST_SEED = 2000
"""Of searches: no other study has these."""


def search_all(lines: Lines, study: Study, place: Place) -> None:
    """Policies at the study's number of evaluations, on the spaces with their cost model, and the order of that model
    alone."""
    tasks = place.tasks(study.trained + study.unseen, study, advised=False)
    tell_spaces(lines, tasks, study)
    for problem, task in tasks.items():
        if not lines.of("search", arm=MODEL, problem=problem):
            _add_search(lines, study, problem, MODEL, 0, task, by_estimate(task.space)[: study.evaluations])
    for seed in range(FIRST_SEED, FIRST_SEED + study.searches):
        for problem, task in tasks.items():
            for arm in SEARCHES:
                if lines.of("search", arm=arm, problem=problem, seed=seed):
                    continue
                trials = play(
                    task.space, make_policy(arm), task.space.trial, budget=study.evaluations, seed=seed
                )  # fmt: skip
                _add_search(lines, study, problem, arm, seed, task, [one.values for one in trials])


def by_estimate(space: RecordedSpace) -> list[Values]:
    """All recorded combinations, the cost model's cheapest first; equals in the order of the grid."""
    grid = Grid(space)
    every = [grid.values(point) for point in space.points]
    costs = {at: space.estimate(values) for at, values in enumerate(every)}
    order = sorted(costs, key=lambda at: (costs[at] is None, costs[at] or 0.0, at))
    return [every[at] for at in order]


def judged(task: SpaceTask, values: Sequence[Values]) -> dict[str, list[float]]:
    """Percentile of each combination, and the optimum over its cost (0 where it failed)."""
    table = task.space.table
    scored = task.score([json.dumps(one) for one in values])
    costs = [table.entries[tuple(one[slot.name] for slot in table.slots)].cost_us for one in values]
    return {
        "percentile": [one.percentile or 0.0 for one in scored],
        "share": [table.optimum_us / cost if cost is not None else 0.0 for cost in costs],
    }


def _add_search(
    lines: Lines, study: Study, problem: str, arm: str, seed: int, task: SpaceTask, values: Sequence[Values]
) -> None:
    split = study.split(problem)
    lines.add("search", arm=arm, seed=seed, problem=problem, split=split, **judged(task, values))


def replies_of(
    lines: Lines, study: Study, tasks: Mapping[str, SpaceTask], arm: str, seed: int, adapter: Path | None
) -> None:
    """Replies to every problem that this version has not answered yet."""
    from warpsmith.rl.train.policy import load_policy
    from warpsmith.rl.train.sampler import replies, seed_of

    version = adapter.name if adapter is not None else ""
    tell_spaces(lines, tasks, study)
    known = {line["problem"] for line in lines.of("replies", arm=arm, seed=seed, version=version)}
    missing = {problem: task for problem, task in tasks.items() if problem not in known}
    if not missing:
        return
    policy = load_policy(study.train.model.model_copy(update={"adapter": adapter}))
    plain = study.train.sampling.model_copy(update={"explore": 0.0})
    for problem, task in missing.items():
        asked = [(task, seed_of("study", seed, problem, number)) for number in range(study.replies)]
        texts = [one.text for one in replies(policy, asked, plain, lambda: None)]
        different = list(dict.fromkeys(texts))
        lines.add(
            "replies", arm=arm, seed=seed, version=version, problem=problem, split=study.split(problem),
            drawn=[different.index(text) for text in texts], values=[task.values(text) for text in different],
            **judged(task, [task.values(text) for text in different]),
        )  # fmt: skip
        print(f"{arm} {seed}: {problem}: {len(different)} different of {len(texts)} replies", flush=True)


def tell_spaces(lines: Lines, tasks: Mapping[str, SpaceTask], study: Study) -> None:
    """What was recorded, once."""
    for problem, task in tasks.items():
        if lines.of("space", problem=problem):
            continue
        table, space = task.space.table, task.space
        costs = sorted(one.cost_us for one in table.entries.values() if one.cost_us is not None)
        own = judged(task, [space.sensible(), space.naive])
        told: dict[str, Any] = {
            "family": space.name, "combinations": len(table.entries), "verified": len(costs),
            "optimum_us": costs[0], "median_us": costs[len(costs) // 2], "worst_us": costs[-1],
            "near": sum(cost <= 1.03 * costs[0] for cost in costs), "default_percentile": own["percentile"][0],
            "default_share": own["share"][0], "naive_share": own["share"][1],
        }  # fmt: skip
        lines.add("space", problem=problem, split=study.split(problem), table=table.name, **told)
