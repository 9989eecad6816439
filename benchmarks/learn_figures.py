"""Figures of the study: what a line says, and means over problems and seeds with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from learn_evaluate import MODEL, SEARCHES
from learn_setup import Lines
from numpy.typing import NDArray

from warpsmith.rl.train.held_out import expected_best

Floats = NDArray[np.float64]

ARMS = ("base", "trained", *SEARCHES, MODEL)
WHAT = ("percentile", "best", "share")
_REPEATS = 400
"""Draws of eight of a policy's replies."""
_RESAMPLES = 4000


def of_replies(line: Mapping[str, Any], count: int) -> dict[str, float]:
    """Mean percentile of a reply; what the best of so many different replies beats and its share of the optimum, means
    over draws; and `repeats`: the first of these where a repeated reply counts as an evaluation as well."""
    drawn = np.asarray(line["drawn"])
    ranks, shares = np.asarray(line["percentile"]), np.asarray(line["share"])
    rng = np.random.default_rng(0)
    best, share = [], []
    for _ in range(_REPEATS):
        different = list(dict.fromkeys(rng.permutation(drawn).tolist()))[:count]
        best.append(ranks[different].max())
        share.append(shares[different].max())
    return {
        "percentile": float(ranks[drawn].mean()), "best": float(np.mean(best)), "share": float(np.mean(share)),
        "repeats": expected_best(ranks[drawn].tolist(), count), "different": float(len(ranks)),
        "verified": float((shares[drawn] > 0).mean()),
    }  # fmt: skip


def of_search(line: Mapping[str, Any], count: int) -> dict[str, float]:
    """The same of a search."""
    ranks, shares = line["percentile"][:count], line["share"][:count]
    best = float(max(ranks))
    return {"percentile": float(np.mean(ranks)), "best": best, "share": float(max(shares)), "repeats": best}


@dataclass(frozen=True)
class Grid:
    """One figure of one arm: a row a problem, a column a seed."""

    values: Floats

    def mean(self) -> float:
        """Every problem and every seed with the same weight."""
        return float(self.values.mean())


def grids(lines: Lines, problems: Sequence[str], count: int) -> dict[str, dict[str, Grid]]:
    """Arm -> figure -> grid, of the arms that have every problem; seeds that lack one are left out."""
    rows: dict[tuple[str, int, str], dict[str, float]] = {}
    last = {(x["arm"], x["seed"]): x["version"] for x in lines.of("replies")}
    for line in lines.of("replies"):
        if line["version"] == last[line["arm"], line["seed"]]:
            rows[line["arm"], line["seed"], line["problem"]] = of_replies(line, count)
    for line in lines.of("search"):
        rows[line["arm"], line["seed"], line["problem"]] = of_search(line, count)
    found: dict[str, dict[str, Grid]] = {}
    for arm in ARMS:
        seeds = sorted({seed for one, seed, _ in rows if one == arm})
        whole = [seed for seed in seeds if all((arm, seed, problem) in rows for problem in problems)]
        if whole and problems:
            names = rows[arm, whole[0], problems[0]]
            found[arm] = {
                name: Grid(np.array([[rows[arm, seed, problem][name] for seed in whole] for problem in problems]))
                for name in names
            }
    return found


def interval(figure: Callable[[Callable[[Grid], float]], float], shape: int) -> tuple[float, float]:
    """The 95 % interval of a figure under resampling of the problems, the same for all grids, and of each grid's seeds.
    `figure` gets a function from a grid to its resampled mean; `shape`: problems."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(_RESAMPLES):
        problems = rng.integers(shape, size=shape)

        def mean(grid: Grid, problems: NDArray[np.int64] = problems) -> float:
            seeds = rng.integers(grid.values.shape[1], size=grid.values.shape[1])
            return float(grid.values[np.ix_(problems, seeds)].mean())

        found.append(figure(mean))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)
