"""Evaluation of a policy on tasks that it is not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.sampler import replies, scores, seed_of
from warpsmith.rl.train.settings import SamplingSettings
from warpsmith.rl.train.task import Task


def evaluated(
    policy: Policy, tasks: Sequence[Task], settings: SamplingSettings, *, samples: int, seed: int
) -> dict[str, float]:
    """Means over tasks: `eval/percentile` and `eval/reward` of a reply, `eval/best_of_N` (percentile), `eval/verified`.
    Replies are drawn without exploration and with seeds of their own, the same at each call, so that two policies
    differ by what they learnt. A reply without a reward leaves the means."""
    plain = settings.model_copy(update={"explore": 0.0})
    asked = [(task, seed_of(seed, "eval", task.name, member)) for task in tasks for member in range(samples)]
    written = replies(policy, asked, plain, lambda: None)
    rows: dict[str, list[float]] = {}
    for at, task in enumerate(tasks):
        counted = [one for one in scores(task, written[at * samples : (at + 1) * samples]) if one.reward is not None]
        if not counted:
            continue
        rows.setdefault("eval/reward", []).append(_mean([one.reward or 0.0 for one in counted]))
        rows.setdefault("eval/verified", []).append(_mean([float(one.verified) for one in counted]))
        ranks = [one.percentile for one in counted if one.percentile is not None]
        if ranks:
            rows.setdefault("eval/percentile", []).append(_mean(ranks))
            rows.setdefault(f"eval/best_of_{samples}", []).append(max(ranks))
    return {name: _mean(row) for name, row in rows.items()}


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures) if figures else math.nan
