"""A run's evaluations as T4 results, and what comes back of them."""

import asyncio
import json
from pathlib import Path

import pytest
from support.slow_search import new_store

from warpsmith.agents.policy import Request
from warpsmith.agents.recorded import TableSpace
from warpsmith.agents.registry import make_policy
from warpsmith.agents.synthetic import SLOTS, synthetic_cost, synthetic_spec
from warpsmith.graph.run import run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.errors import UserError
from warpsmith.rl.replay import curve, replay
from warpsmith.tools.null import NullEvaluator, PlantedFailure
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.t4 import t4_documents
from warpsmith.tools.tables.folder import read_table


def searched(store: RunStore, budget: int = 40) -> None:
    """A search in which one value of a slot does not compile."""
    evaluator = NullEvaluator(store=store, cost=synthetic_cost, failures=(PlantedFailure("scheme", "atomics"),))
    settings = SearchSettings(policy="genetic", budget=budget)
    asyncio.run(run_search([synthetic_spec()], evaluator, store, settings, lambda kind, data: None))


def test_a_run_is_written_and_read_back_with_every_outcome(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        searched(store)
        (family, document), *others = t4_documents(store).items()
        outcomes = store.outcomes()
    assert (family, others) == ("synthetic", [])
    assert document["schema_version"] == "1.0.0"
    results = document["results"]
    assert len(results) == len(outcomes) == 40
    assert {r["invalidity"] for r in results} == {"correct", "compile"}
    # Nothing was measured: no figure may pass for a time.
    assert all(r["objectives"] == ["estimated_time"] for r in results)
    assert not any(m["name"] == "time" for r in results for m in r["measurements"])
    assert all(r["timestamp"].startswith("20") for r in results)

    path = tmp_path / "run.t4.json"
    path.write_text(json.dumps(document))
    table = read_table(path)
    owners = {slot.name: slot.owner for slot in SLOTS}
    assert all(slot.owner == owners[slot.name] for slot in table.slots)
    for outcome in outcomes:
        entry = table.entries[tuple(outcome.slots[slot.name] for slot in table.slots)]
        if outcome.correct:
            assert entry.cost_us == pytest.approx(outcome.cost_us)
        else:
            assert entry.failure is not None
            assert entry.failure.stage == "compile"
    trials = replay(table, make_policy("builtin"), budget=40, seed=0)
    assert len(trials) == 40
    assert curve(table, trials, (40,))[0] == 1.0


def test_records_of_another_device_are_tried_in_their_order(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        searched(store)
        (document,) = t4_documents(store).values()
    path = tmp_path / "elsewhere.t4.json"
    path.write_text(json.dumps(document))
    table = read_table(path)
    (tmp_path / "here.t4.json").write_text(json.dumps(document))
    here = TableSpace(read_table(tmp_path / "here.t4.json"))
    made = make_policy(f"transfer:{path}").propose(Request(here, (), "start", 10, 0, 0))
    costs = [table.entries[tuple(p.values[slot.name] for slot in table.slots)].cost_us for p in made]
    assert costs == sorted(e.cost_us for e in table.entries.values() if e.cost_us is not None)[:10]
    assert make_policy(f"transfer:{tmp_path}").opening(here) == made[0].values
    with pytest.raises(UserError, match="no record of another device"):
        make_policy(f"transfer:{path}").opening(TableSpace(table))
