"""Raw timings of a candidate, and what they say of its median."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore

CANDIDATE = "candidate"
_EXACT = 500
"""Samples up to which the interval is exact; beyond, the binomial distribution is normal."""
_NORMAL_95 = 1.959964


def samples_of(store: RunStore, outcome: Outcome) -> dict[str, list[float]]:
    """Microseconds by contender, in the order they were taken; empty where none were kept."""
    if outcome.samples is None:
        return {}
    try:
        found = json.loads(store.get_blob(outcome.samples))["samples"]
        return {str(name): [float(value) for value in values] for name, values in found.items()}
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def median_interval(samples: Sequence[float]) -> list[float] | None:
    """The order statistics between which the median lies with at least 95 % (the sign test's interval, for samples of
    any distribution); None for fewer than six, where no two do."""
    n = len(samples)
    below = _below(n) if n <= _EXACT else math.floor(n / 2 - 0.5 * _NORMAL_95 * math.sqrt(n))
    if below == 0:
        return None
    ordered = sorted(samples)
    return [ordered[below - 1], ordered[n - below]]


def _below(n: int) -> int:
    """The largest k for which fewer than k of n samples lie below the median with a chance of at most 2.5 %."""
    below, tail = 0, 1
    while tail * 40 <= 2**n:
        below += 1
        tail += math.comb(n, below)
    return below
