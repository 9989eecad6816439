"""The search graph for `langgraph dev`, made without a key or a GPU: of a problem, or of a synthetic landscape."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.app.chat.judge import LateEvaluator
from warpsmith.app.chat.screen import Screen
from warpsmith.app.workbench import open_bench, specs_of, write_manifest
from warpsmith.graph.build import Compiled, build_graph
from warpsmith.graph.run import ignore, make_context
from warpsmith.graph.state import Context, SearchSettings
from warpsmith.kernels.records import RunManifest
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore, utc_now

PROBLEM = "WARPSMITH_STUDIO_PROBLEM"
"""Environment variable: the problem file; without it a synthetic landscape is searched."""
BUDGET = 16


@functools.cache
def make_graph() -> Compiled:
    """The one graph of the process (servers ask for it at every run), with everything it works with.

    Started with the input `{"gated": true}` it interrupts before every evaluation; the answer is `{"approved": true}`,
    or `{"approved": false, "reason": "..."}`.
    """
    problem = os.environ.get(PROBLEM)
    context = _of_problem(problem) if problem else _synthetic()
    context.asks = True
    return build_graph(bound=context)


def _of_problem(path: str) -> Context:
    bench = open_bench(path, device="auto", arch=None, overrides={}, inputs=None, mode="eval")
    specs = specs_of(bench)
    store = RunStore.create(Path(bench.problem.ref.path).stem, _folder())
    write_manifest(store, bench, {"problem": bench.problem.ref.model_dump(mode="json"), "given": path}, 0)

    def unheard(kind: str, data: Mapping[str, Any]) -> None:
        """The server shows states, not events."""

    evaluator = LateEvaluator(bench, specs, store, Screen(), unheard, counters="none")
    return make_context(list(specs.values()), evaluator, store, SearchSettings(budget=BUDGET), ignore)


def _synthetic() -> Context:
    store = RunStore.create("synthetic", _folder())
    store.write_manifest(
        RunManifest(
            run_id=store.run_id, created=utc_now(), config={}, versions={}, commit=None, device="none", arch="sm_90",
            seed=0, problem_hash="0" * 64, problem_path="synthetic",
        )
    )  # fmt: skip
    evaluator = NullEvaluator(store=store, cost=synthetic_cost)
    specs = [synthetic_spec("synthetic"), synthetic_spec("synthetic2")]
    return make_context(specs, evaluator, store, SearchSettings(budget=BUDGET), ignore)


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="warpsmith-studio-"))
