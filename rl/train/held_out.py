"""Evaluation of a policy on tasks that it is not trained on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from warpsmith.rl.train.group import members, roles, scores
from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.sampler import replies, seed_of
from warpsmith.rl.train.settings import SamplingSettings
from warpsmith.rl.train.task import Asked

BEST_OF = 8
"""Replies whose best is told whatever the number that was drawn."""


def evaluated(
    policy: Policy, tasks: Sequence[Asked], settings: SamplingSettings, *, samples: int, seed: int,
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, float]]:  # fmt: skip
    """Of each task `eval/percentile` and `eval/reward` of a reply, `eval/best_of_N` (percentile), `eval/verified`.
    `eval/best_of_8` is what the best of eight of them is expected to be.
    Replies are drawn without exploration and with seeds of their own, the same at each call, so that two policies
    differ by what they learnt. A reply without a reward leaves the means, a task without any has no figures. `check` is
    called between tokens and between tasks, and ends the evaluation by raising."""
    plain = settings.model_copy(update={"explore": 0.0})
    asked = [
        (role, seed_of(seed, "eval", role.name, member))
        for task in tasks for role in roles(task) for member in range(samples)
    ]  # fmt: skip
    left = iter(replies(policy, asked, plain, check))
    rows: list[dict[str, float]] = []
    for task in tasks:
        check()
        scored = scores(task, members(task, list(itertools.islice(left, samples * len(roles(task))))))
        rewards = [one.reward for one in scored if one.reward is not None]
        if not rewards:
            continue
        verified = [float(one.verified) for one in scored if one.reward is not None]
        ranks = [one.percentile for one in scored if one.reward is not None and one.percentile is not None]
        row = {"eval/reward": _mean(rewards), "eval/verified": _mean(verified)}
        if ranks:
            row |= {"eval/percentile": _mean(ranks), f"eval/best_of_{samples}": max(ranks)}
        if len(ranks) >= BEST_OF:
            row[f"eval/best_of_{BEST_OF}"] = expected_best(ranks, BEST_OF)
        rows.append(row)
    return rows


def expected_best(values: Sequence[float], count: int) -> float:
    """The best of `count` of these that is to be expected, drawn without putting back; at least `count` values."""
    ways = math.comb(len(values), count)
    return sum(math.comb(below, count - 1) * one for below, one in enumerate(sorted(values))) / ways


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over the tasks that have a figure."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _mean([row[name] for row in rows if name in row]) for name in names}


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures)
