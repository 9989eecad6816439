"""Runs to read trajectories from: whole searches on the synthetic family, by models and by policies without one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.played import PROBLEM, played

from warpsmith.agents.chat.grammar import parse_crew
from warpsmith.agents.chat.policy import ChatPolicy
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.llm.scripted.players import Player, RandomLegal
from warpsmith.agents.local.address import Settings, find_model
from warpsmith.agents.local.asker import LocalAsker
from warpsmith.agents.policy import Policy
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.synthetic import SLOTS, synthetic_cost, synthetic_spec
from warpsmith.graph.run import run_search
from warpsmith.graph.state import Means, SearchSettings
from warpsmith.kernels.device import model_for
from warpsmith.kernels.records import RunManifest
from warpsmith.tools.null import NullEvaluator, PlantedFailure
from warpsmith.tools.runs.store import RunStore, utc_now

SPACE = {"synthetic": {"slots": {slot.name: {"owner": slot.owner} for slot in SLOTS}}}


def new_store(out: Path, name: str = "softmax", **config: Any) -> RunStore:
    """An empty run of a problem that lies in somebody's home."""
    store = RunStore.create(name, out)
    store.write_manifest(
        RunManifest(
            run_id=store.run_id, created=utc_now(), versions={"warpsmith": "0.1.0"}, commit="c" * 40, arch="sm_90",
            config={"policy": "builtin", "space": {"families": SPACE, "operators": ["exp"]}, **config},
            device="gpu:null", seed=3, problem_hash="5" * 64, problem_path="/home/somebody/problems/softmax.py",
        )
    )  # fmt: skip
    return store


def searched(
    store: RunStore, policy: Policy | None = None, *, failures: Sequence[PlantedFailure] = (), **settings: Any
) -> None:
    """A search all of whose candidates get the full verdict, as those of a rollout do."""
    evaluator = NullEvaluator(store=store, cost=synthetic_cost, measured=True, failures=failures)
    wanted = SearchSettings(**{"budget": 12, "batch": 4, "seed": 3, **settings})
    asyncio.run(run_search([synthetic_spec()], evaluator, store, wanted, means=Means(policy)))
    every = [store.get_candidate(one.candidate) for one in store.outcomes()]
    asyncio.run(evaluator.evaluate(every, level="full"))


def by_players(out: Path, player: Player | None = None, **settings: Any) -> Path:
    """A run whose roles are played by a server."""
    with new_store(out) as store, played(player or RandomLegal(3), store.folder) as one:
        searched(store, one.policy, **settings)
        return store.folder


def by_a_model(out: Path, model: Path, **settings: Any) -> Path:
    """A run whose roles are a model of this process."""
    with new_store(out) as store:
        exact = Settings(dtype="float32", device="cpu")
        asker = LocalAsker(find_model(model), exact, seed=3, store=ReplyStore(store.folder))
        crew = parse_crew(f"local:{model}")
        resources = PolicyResources(
            lambda address: asker, lambda kind, data: None, model_for("sm_90"), PROBLEM, asker.interrupt
        )  # fmt: skip
        searched(store, ChatPolicy(f"local:{model}", crew, resources), **settings)
        asker.close()
        return store.folder
