"""Resuming a search whose process ended after a step's nodes and before the step's checkpoint."""

import asyncio
import json
from pathlib import Path

import pytest
from support.slow_search import new_store

from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.graph.run import SearchResult, open_saver, run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.errors import UserError
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore

BUDGET = 9


async def search(store: RunStore, *, resume: bool = False) -> SearchResult:
    settings = SearchSettings(budget=BUDGET, seed=5, batch=3, resume=resume)
    return await run_search([synthetic_spec()], NullEvaluator(store=store, cost=synthetic_cost), store, settings)


def evaluated(store: RunStore) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in (store.folder / "results.jsonl").read_text().splitlines()]
    return [(record["candidate"], record["status"]) for record in records]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    with new_store(tmp_path_factory.mktemp("whole")) as store:
        asyncio.run(search(store))
        return evaluated(store)


@pytest.mark.parametrize("checkpoints", [4, 5])
def test_it_goes_on_and_is_not_taken_for_ended(
    checkpoints: int, tmp_path: Path, undisturbed: list[tuple[str, str]]
) -> None:
    full = (
        f"CREATE TRIGGER full BEFORE INSERT ON checkpoints WHEN (SELECT count(*) FROM checkpoints) >= {checkpoints} "
        "BEGIN SELECT RAISE(FAIL, 'no room'); END"
    )

    async def stopped_before_a_checkpoint(store: RunStore) -> None:
        async with open_saver(store) as saver:
            await saver.conn.execute(full)
            await saver.conn.commit()
        with pytest.raises(UserError):
            await search(store)
        async with open_saver(store) as saver:
            await saver.conn.execute("DROP TRIGGER full")
            await saver.conn.commit()

    with new_store(tmp_path) as store:
        asyncio.run(stopped_before_a_checkpoint(store))
        ended = asyncio.run(search(store, resume=True))
        assert (ended.stop, ended.screened) == ("budget", BUDGET)
        assert ended.best is not None
        assert evaluated(store) == undisturbed
