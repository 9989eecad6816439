"""Statistics of timings: quantiles, and the median of paired ratios with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warpsmith.kernels.records import Quantiles, Speedup

_RESAMPLES = 1000


def quantiles(samples: Sequence[float]) -> Quantiles:
    """10th, 50th and 90th percentile."""
    p10, p50, p90 = np.percentile(np.asarray(samples, dtype=np.float64), [10, 50, 90])
    return Quantiles(p10=float(p10), p50=float(p50), p90=float(p90), n=len(samples))


def speedup(baseline: Sequence[float], candidate: Sequence[float], *, seed: int = 0) -> Speedup:
    """Median of baseline / candidate over pairs, with its 95 % percentile-bootstrap interval (Efron 1979).
    Samples at the same position were taken next to each other."""
    count = min(len(baseline), len(candidate))
    if count == 0:
        raise ValueError("no pairs")
    ratios = np.asarray(baseline[:count], dtype=np.float64) / np.asarray(candidate[:count], dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, count, size=(_RESAMPLES, count))
    medians = np.median(ratios[draws], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Speedup(value=float(np.median(ratios)), low=float(low), high=float(high))


def half_width(interval: Speedup) -> float:
    """Half the interval's width relative to its value."""
    return (interval.high - interval.low) / 2 / interval.value
