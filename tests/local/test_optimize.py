"""A whole search by a model of this process, and its going on from kept replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.local.decisions import Decisions
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.workbench import open_bench

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "softmax.py"


def optimized(policy: str, out: Path, **more: Any) -> Finished:
    small = {"batch_size": "8", "dim": "256"}
    bench = open_bench(str(EXAMPLE), device="cpu", arch=None, overrides=small, inputs=None, mode="eval")
    wanted = OptimizeSettings(problem=str(EXAMPLE), device="cpu", policy=policy, verdicts=1, out=out, **more)
    return optimize_bench(bench, wanted, QuietDisplay())


def test_a_search_ends_with_a_verified_kernel_and_goes_on_without_asking_twice(folder: Path, tmp_path: Path) -> None:
    policy = f"local:{folder}?device=cpu"
    finished = optimized(policy, tmp_path, budget=5)
    best = finished.result.best
    assert best is not None
    assert best.status == "ok"
    store = ReplyStore(finished.folder)
    calls = store.calls()
    assert len(calls) >= 4
    assert all(call.accepted and call.rung == "schema" and call.cost_usd == 0.0 for call in calls)
    for call in calls:
        decisions = Decisions.unpacked(store.decisions(call) or b"")
        assert decisions.dtype == "bfloat16"
        assert len(decisions.completion_ids) == call.usage.completion_tokens
    events = [json.loads(line) for line in (finished.folder / "events.jsonl").read_text().splitlines()]
    assert any(event["kind"] == "reply" and event["data"]["edits"] for event in events)

    again = optimized(policy, tmp_path, budget=7, resume=finished.folder)
    assert again.result.screened == 7
    prompts = [call.prompt_hash for call in ReplyStore(finished.folder).calls()]
    assert len({(call.prompt_hash, call.sample) for call in ReplyStore(finished.folder).calls()}) == len(prompts)
    assert ReplyStore(finished.folder).calls()[: len(calls)] == calls
