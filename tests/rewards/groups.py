"""Outcomes and groups for the tests of rewards."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.kernels.records import Outcome, Quantiles, Speedup
from warpsmith.rl.rewards.gates import Member, member_of
from warpsmith.rl.rewards.settings import RewardSettings

EXACT = RewardSettings(margin=0.0)
FAILURES = ("rejected", "compile_error", "launch_error", "crashed", "hang", "wrong", "suspicious", "not_measured")


def timed(us: float, key: str, *, spread: float = 0.0, n: int = 100, **more: Any) -> Outcome:
    """A verified candidate of this median; `spread` is p90 - p10 as a share of it."""
    time = Quantiles(p10=us * (1 - spread / 2), p50=us, p90=us * (1 + spread / 2), n=n)
    fields = {"status": "ok", "provenance": "own", "verified_on": "gpu:A", "time_us": time, **more}
    return Outcome(candidate=key, problem_hash="p", **fields)


def failed(status: str, key: str) -> Outcome:
    """A candidate that is not right, or nobody knows."""
    return Outcome(candidate=key, problem_hash="p", status=status)


def paired(ratio: float, half: float, key: str, us: float) -> Outcome:
    """A verified candidate `ratio` times as fast as eager, whose own median is `us`."""
    return timed(us, key, speedup={"eager": Speedup(value=ratio, low=ratio / (1 + half), high=ratio * (1 + half))})


def group(times: list[float | None], settings: RewardSettings = EXACT) -> list[Member]:
    """Verified members of these medians; None: one that is wrong."""
    made = [failed("wrong", f"k{i}") if us is None else timed(us, f"k{i}") for i, us in enumerate(times)]
    return [member_of(one, settings) for one in made]


def drawn(rng: np.random.Generator, n: int, wrong: float = 0.3) -> list[float | None]:
    """Random medians, some of them equal; some members wrong, but not all."""
    times = np.round(rng.lognormal(3.0, 0.7, n), 1)
    found: list[float | None] = [None if rng.random() < wrong else float(t) for t in times]
    found[int(rng.integers(n))] = float(times[0])
    return found
