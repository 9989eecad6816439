"""Raw timings of a candidate, and what they say of its median."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scipy.stats import binom

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore

CANDIDATE = "candidate"


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
    below = int(binom.ppf(0.025, n, 0.5))
    if n < 6 or below < 1:
        return None
    ordered = sorted(samples)
    return [ordered[below - 1], ordered[n - below]]
