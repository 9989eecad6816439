"""A search with a person in it, on the synthetic family: approvals, wishes, undo, checkout and branches."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from langgraph.runtime import RunControl
from support.slow_search import new_store

from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.graph.interactive import Interactive, Standing, interactive
from warpsmith.graph.run import ignore, run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore

Steps = Callable[[Interactive, NullEvaluator], Awaitable[None]]


def hold(folder: Path, steps: Steps, budget: int = 40) -> RunStore:
    """Runs the steps on a new search of two families; returns its store, closed."""

    async def run(store: RunStore) -> None:
        evaluator = NullEvaluator(store=store, cost=synthetic_cost)
        specs = [synthetic_spec("a"), synthetic_spec("b2")]
        async with interactive(specs, evaluator, store, SearchSettings(budget=budget), ignore) as search:
            await search.begin()
            await search.advance(RunControl())
            await steps(search, evaluator)

    with new_store(folder) as store:
        asyncio.run(run(store))
        return store


async def a_round(search: Interactive, answer: bool = True, reason: str = "") -> Standing:
    """Up to the next question, its answer, and up to the next stop."""
    now = await search.standing()
    if now.asked is None:
        await search.mark("round")
        await search.advance(RunControl())
        now = await search.standing()
    assert now.asked
    await search.advance(RunControl(), {"approved": answer, "reason": reason})
    return now


def values_of(search: Interactive, now: Standing) -> list[dict[str, object]]:
    """Slot values of what waits for approval."""
    return [dict(search.context.store.get_candidate(candidate).values) for candidate in now.asked or ()]


def test_nothing_is_evaluated_before_it_is_approved(tmp_path: Path) -> None:
    async def steps(search: Interactive, evaluator: NullEvaluator) -> None:
        assert evaluator.evaluations == 0
        refused = await a_round(search, answer=False, reason="try fewer threads")
        assert evaluator.evaluations == 0
        now = await search.standing()
        assert now.values["notes"] == ["try fewer threads"]
        other = await a_round(search)
        assert set(other.asked or ()).isdisjoint(refused.asked or ())
        assert evaluator.evaluations == len(other.asked or ())

    hold(tmp_path, steps)


def test_pins_and_limits_bind_every_proposal_and_undo_takes_them_back(tmp_path: Path) -> None:
    async def steps(search: Interactive, evaluator: NullEvaluator) -> None:
        await a_round(search)
        await search.wish("lock", pins={"block": 64, "family": "b2"}, limits={"registers": 60})
        await search.advance(RunControl())
        for _ in range(3):
            now = await a_round(search)
            for candidate in now.asked or ():
                stored = search.context.store.get_candidate(candidate)
                assert (stored.values["block"], stored.family) == (64, "b2")
                spec = search.context.specs[1]
                assert search.context.spaces[1].demand(dict(stored.values))["registers"] <= 60, spec
        before = await search.standing()
        best = search.context.store.get_candidate(before.values["incumbent"] or "")
        assert best.values["block"] == 64
        measured = evaluator.evaluations
        for _ in range(3):
            assert await search.undo() == ["round"]
        assert await search.undo() == ["lock"]
        after = await search.standing()
        assert not after.values.get("pins")
        assert after.screened == 2
        assert after.used == before.used == before.screened
        await search.wish("lock", pins={"block": 64, "family": "b2"}, limits={"registers": 60})
        await search.advance(RunControl())
        for _ in range(3):
            await a_round(search)
        again = await search.standing()
        assert again.values["trials"] == before.values["trials"]
        assert evaluator.evaluations == measured

    hold(tmp_path, steps)


def test_after_a_checkout_the_search_descends_from_that_candidate(tmp_path: Path) -> None:
    async def steps(search: Interactive, evaluator: NullEvaluator) -> None:
        for _ in range(3):
            await a_round(search)
        now = await search.standing()
        other = next(t for t in now.values["trials"] if t["candidate"] != now.values["incumbent"])
        wish = {"root": other["candidate"], "root_step": now.values["step"] + 1, "spec": other["spec"], "stayed": 0}
        await search.wish("checkout", **wish)
        await search.advance(RunControl())
        line = {other["candidate"]}
        for _ in range(4):
            asked = await a_round(search)
            assert {ref["base"] for ref in asked.values["pending"]} <= line
            line |= set(asked.asked or ())

    hold(tmp_path, steps)


def test_a_fork_goes_on_from_there_and_can_be_left_again(tmp_path: Path) -> None:
    async def steps(search: Interactive, evaluator: NullEvaluator) -> None:
        await a_round(search)
        here = await search.standing()
        await search.mark("branch", branch="other")
        await search.wish("lock", pins={"scheme": "atomics"})
        await search.advance(RunControl())
        await a_round(search)
        there = await search.standing()
        assert here.checkpoint is not None
        await search.fork(here.checkpoint)
        back = await search.standing()
        assert (back.values.get("branch"), back.screened) == ("main", here.screened)
        assert there.checkpoint is not None
        await search.fork(there.checkpoint)
        assert (await search.standing()).values["branch"] == "other"
        assert (await search.standing()).values["trials"] == there.values["trials"]

    hold(tmp_path, steps)


def test_optimize_goes_on_with_what_a_chat_left_at_a_question(tmp_path: Path) -> None:
    async def steps(search: Interactive, evaluator: NullEvaluator) -> None:
        await a_round(search)
        await search.wish("lock", pins={"scheme": "shuffle"})
        await search.advance(RunControl())
        await search.mark("round")
        await search.advance(RunControl())
        assert (await search.standing()).asked

    left = hold(tmp_path, steps, budget=12)
    with RunStore.open(left.folder) as store:
        evaluator = NullEvaluator(store=store, cost=synthetic_cost)
        specs = [synthetic_spec("a"), synthetic_spec("b2")]
        settings = SearchSettings(budget=12, resume=True)
        result = asyncio.run(run_search(specs, evaluator, store, settings))
    assert (result.screened, result.stop) == (12, "budget")
    assert result.best is not None
    assert result.best.slots["scheme"] == "shuffle"
