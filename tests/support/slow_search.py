"""A search in a process of its own, slow enough to be killed: FOLDER BUDGET DELAY [resume].

Prints a line when the search begins and one when it has ended.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.graph.run import run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.records import Candidate, Outcome, RunManifest
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import Level, RunStore, utc_now


class SlowEvaluator(NullEvaluator):
    """Takes a while for each candidate that is not looked up, and notes it in a file that only grows."""

    def __init__(self, store: RunStore, delay: float) -> None:
        super().__init__(store=store, cost=synthetic_cost)
        self.delay = delay

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        found: list[Outcome] = []
        for candidate in candidates:
            await asyncio.sleep(self.delay)
            found.extend(await super().evaluate([candidate], level=level))
        return found


def new_store(folder: Path) -> RunStore:
    """A run folder with a manifest."""
    store = RunStore.create("search", folder)
    store.write_manifest(
        RunManifest(
            run_id=store.run_id,
            created=utc_now(),
            config={},
            versions={},
            commit=None,
            device="none",
            arch="sm_90",
            seed=0,
            problem_hash="0",
            problem_path="synthetic",
        )
    )
    return store


async def main(folder: Path, budget: int, delay: float, resume: bool) -> None:
    with RunStore.open(folder) as store:
        os.write(1, b"begins\n")
        settings = SearchSettings(budget=budget, seed=5, batch=3, resume=resume)
        result = await run_search([synthetic_spec()], SlowEvaluator(store, delay), store, settings)
        os.write(1, f"ended {result.stop} {result.screened}\n".encode())


def command() -> None:
    """The search that the command line names."""
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), "resume" in sys.argv))
