"""Replay on recorded tables: what a policy may see, what counts, and how good the policies are at equal budgets."""

import json
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from warpsmith.agents.policy import Proposal, Request, proposal
from warpsmith.agents.pool import valid_points
from warpsmith.agents.recorded import TableSpace
from warpsmith.agents.registry import make_policy
from warpsmith.agents.space import Grid, SearchSpace
from warpsmith.kernels.slots import Values
from warpsmith.rl.credit import SINGLE
from warpsmith.rl.evaluation import Settings, evaluate
from warpsmith.rl.replay import curve, replay
from warpsmith.rl.single import one_agent
from warpsmith.tools.tables.folder import read_table
from warpsmith.tools.tables.table import Table

TABLES = Path(__file__).parents[2] / "benchmarks" / "data" / "tuning"
PNPOLY = TABLES / "pnpoly_RTX3090.csv.xz"


@pytest.fixture(scope="module")
def pnpoly() -> Table:
    return read_table(PNPOLY)


@dataclass(frozen=True)
class Listed:
    """Proposes these values, round for round, then nothing."""

    rounds: Sequence[Sequence[Values]]
    name: str = "listed"

    def opening(self, space: SearchSpace) -> Values:
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        if request.step >= len(self.rounds):
            return []
        return [proposal(request.space, values, None, "listed") for values in self.rounds[request.step]]


def test_a_space_tells_the_configurations_and_nothing_of_their_times(pnpoly: Table) -> None:
    space = TableSpace(pnpoly)
    grid = Grid(space)
    assert len(space.points) == 4092
    assert all(grid.valid(point) for point in space.points[::500])
    assert space.check(space.naive) is None
    assert space.check(space.sensible()) is None
    assert space.check(space.naive | {"block_size_x": 33}) is not None
    assert space.estimate(space.naive) is None
    assert space.groups == {"config": ("block_size_x",), "compute": ("between_method", "tile_size", "use_method")}


def test_one_agent_owns_all_slots_of_the_same_space(pnpoly: Table) -> None:
    team, single = TableSpace(pnpoly), one_agent(TableSpace(pnpoly))
    (own,) = single.groups.values()
    assert set(own) == {name for names in team.groups.values() for name in names}
    assert valid_points(single) == valid_points(team)
    assert (single.check(team.naive), single.naive, single.sensible()) == (None, team.naive, team.sensible())
    trials = replay(pnpoly, make_policy("builtin"), budget=30, seed=0, single=True)
    assert {trial.role for trial in trials} <= {None, SINGLE}
    assert len(trials) == 30
    assert float(curve(pnpoly, trials, (30,))[0]) > 0.5


def test_a_configuration_counts_once_and_an_early_end_keeps_its_best(pnpoly: Table) -> None:
    space = TableSpace(pnpoly)
    a, b = space.naive, space.sensible()
    trials = replay(pnpoly, Listed([[a], [a], [b], [a], [b]]), budget=10, seed=0)
    assert [t.values for t in trials] == [a, b]
    found = curve(pnpoly, trials, (1, 2, 100))
    costs = [pnpoly.optimum_us / (t.cost or np.inf) for t in trials]
    assert found == pytest.approx([costs[0], max(costs), max(costs)])


def test_failures_are_outcomes_and_a_search_without_success_scores_nothing(pnpoly: Table) -> None:
    failed = [key for key, entry in pnpoly.entries.items() if entry.failure]
    assert len(failed) == 318
    values = {slot.name: value for slot, value in zip(pnpoly.slots, failed[0], strict=True)}
    trials = replay(pnpoly, Listed([[values]]), budget=5, seed=0)
    assert trials[0].failure is not None
    assert trials[0].failure.stage == "launch"
    assert list(curve(pnpoly, trials, (1, 5))) == [0.0, 0.0]


@pytest.mark.parametrize("policy", ["builtin", "tpe", "genetic", "coordinate"])
def test_a_search_that_is_taken_up_again_goes_on_as_it_would_have(pnpoly: Table, policy: str) -> None:
    trials = replay(pnpoly, make_policy(policy), budget=24, seed=5, batch=3)
    rounds = [i for i, (one, other) in enumerate(pairwise(trials), 1) if one.step != other.step]
    for length in rounds[-2:]:
        told = [t for t in trials if t.step == trials[length].step]
        request = Request(
            TableSpace(pnpoly), tuple(trials[:length]), told[0].kind, len(told), 5, told[0].step, role=told[0].role
        )
        made = make_policy(policy).propose(request)
        assert [p.values for p in made] == [t.values for t in told]


def test_builtin_is_better_than_random_and_tpe_on_the_tables_in_the_repository() -> None:
    """A short form of docs/results/tables.md: the differences there are over three times as large."""
    files = tuple(sorted(TABLES.glob("*.csv.xz")))
    score = {
        name: evaluate(Settings(name, files, (50, 51, 52), (50,)), lambda table, done: None).overall().mean[50]
        for name in ("builtin", "random", "tpe")
    }
    assert score["builtin"] > max(score["random"], score["tpe"])


def test_scores_are_means_over_seeds_and_tables_with_their_errors(pnpoly: Table) -> None:
    heard: list[tuple[str, int]] = []
    settings = Settings("random", (PNPOLY,), (3, 4, 5), (5, 20))
    found = evaluate(settings, lambda table, done: heard.append((table, done)))
    assert heard == [("pnpoly_RTX3090", 1), ("pnpoly_RTX3090", 2), ("pnpoly_RTX3090", 3)]
    alone = [curve(pnpoly, replay(pnpoly, make_policy("random"), budget=20, seed=s), (5, 20)) for s in (3, 4, 5)]
    assert (found.curves["pnpoly_RTX3090"] == np.stack(alone)).all()
    score = found.overall()
    assert score.mean[20] == pytest.approx(np.mean([a[1] for a in alone]))
    assert score.error[20] == pytest.approx(np.std([a[1] for a in alone], ddof=1) / 3**0.5)


def test_the_results_page_is_made_of_searches_that_are_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "tables.py"
    searches, page = tmp_path / "searches.jsonl", tmp_path / "page.md"
    words = ["--policies", "random,coordinate", "--table", "pnpoly_RTX3090", "--seed", "7", "--seeds", "2"]
    monkeypatch.setattr("sys.argv", [str(script), "--tables", str(TABLES), "--searches", str(searches), *words])
    runpy.run_path(str(script), run_name="__main__")
    lines = [json.loads(line) for line in searches.read_text().splitlines()]
    assert sorted((x["policy"], x["seed"]) for x in lines) == [(p, s) for p in ("coordinate", "random") for s in (7, 8)]
    monkeypatch.setattr("sys.argv", [*sys.argv, "--out", str(page)])
    runpy.run_path(str(script), run_name="__main__")
    assert len(searches.read_text().splitlines()) == 4
    shares = [x["share"][2] for x in lines if x["policy"] == "random"]
    assert f"{np.mean(shares):.3f} ± {np.std(shares, ddof=1) / 2**0.5:.3f}" in page.read_text()


@pytest.mark.slow
def test_processes_side_by_side_change_nothing() -> None:
    alone, beside = (
        evaluate(Settings("builtin", (PNPOLY,), (3, 4, 5), (5, 30), jobs=jobs), lambda table, done: None)
        for jobs in (1, 2)
    )
    assert (alone.curves["pnpoly_RTX3090"] == beside.curves["pnpoly_RTX3090"]).all()
