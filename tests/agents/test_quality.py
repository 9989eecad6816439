"""Search quality at equal budgets on landscapes with interactions: `builtin` against `random`."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from warpsmith.agents.play import play
from warpsmith.agents.policy import Trial
from warpsmith.agents.registry import make_policy
from warpsmith.agents.synthetic import SLOTS, FormulaSpace, landscape_us
from warpsmith.kernels.records import Failure
from warpsmith.kernels.slots import Slot, Values

SEEDS = range(20)


def tile_us(values: Values) -> float:
    """A tiling with a narrow valley: work per block and reuse must match, and staging pays for large tiles
    only."""
    tile = [math.log2(int(values[n])) for n in ("tm", "tn", "tk")]
    threads = math.log2(int(values["tx"])) + math.log2(int(values["ty"]))
    work = tile[0] + tile[1] - threads
    cost = 1.0 + 0.2 * (work - 4.0) ** 2 + 0.1 * (tile[0] - tile[1]) ** 2 + 0.05 * (tile[2] - 4.0) ** 2
    staged = 0.6 - 0.12 * (tile[0] + tile[1] - 8.0) if values["stage"] else 0.0
    return 10.0 * (cost + max(staged, -0.4) + 0.1 * abs(threads - 8.0))


TILES = tuple(
    Slot(name, "config", "choice", values, values[0], "")
    for name, values in {
        "tm": (16, 32, 64, 128),
        "tn": (16, 32, 64, 128),
        "tk": (8, 16, 32),
        "tx": (4, 8, 16, 32),
        "ty": (4, 8, 16, 32),
        "stage": (False, True),
    }.items()
)


def tile_answer(values: Values) -> Trial:
    """Tiles that need too many registers fail to launch."""
    work = int(values["tm"]) * int(values["tn"]) // (int(values["tx"]) * int(values["ty"]))
    if work > 128:
        return Trial(values, None, failure=Failure(stage="launch", message="too many resources requested"))
    return Trial(values, tile_us(values))


def best_found(name: str, space: FormulaSpace, answer: Callable[[Values], Trial], budget: int, seed: int) -> float:
    trials = play(space, make_policy(name), answer, budget=budget, seed=seed, batch=2)
    return min(t.cost for t in trials if t.cost is not None)


@pytest.mark.parametrize("roles", [True, False])
def test_builtin_beats_random_on_role_interactions(roles: bool) -> None:
    space = FormulaSpace(SLOTS, {}, roles=roles)
    compare(space, lambda v: Trial(v, landscape_us(v)), budget=32)


def test_builtin_beats_random_on_tiles_with_failures() -> None:
    compare(FormulaSpace(TILES, {}), tile_answer, budget=32)


def compare(space: FormulaSpace, answer: Callable[[Values], Trial], budget: int) -> None:
    """Over 20 seeds: a lower mean log cost, by more than three standard errors of the paired difference."""
    builtin = np.array([math.log(best_found("builtin", space, answer, budget, s)) for s in SEEDS])
    random = np.array([math.log(best_found("random", space, answer, budget, s)) for s in SEEDS])
    difference = random - builtin
    assert difference.mean() > 3 * difference.std(ddof=1) / math.sqrt(len(SEEDS))
    assert difference.mean() > 0.03
