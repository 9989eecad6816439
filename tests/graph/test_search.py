"""A whole search on the synthetic family: budgets, lineage, events, families, finalists, and what lies on
disk."""

import asyncio
import json
import runpy
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.runtime import RunControl
from support.slow_search import new_store

from warpsmith.agents.synthetic import landscape_us, synthetic_cost, synthetic_spec
from warpsmith.graph.run import SearchResult, run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate, Failure, Outcome
from warpsmith.tools.null import NullEvaluator, PlantedFailure
from warpsmith.tools.runs.store import Level, RunStore

Heard = list[tuple[str, Mapping[str, Any]]]


class Judge(NullEvaluator):
    """Rejects at the full verdict the schemes it is given."""

    rejected: tuple[str, ...] = ()

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        outcomes = await super().evaluate(candidates, level=level)
        return [
            o.model_copy(update={"status": "wrong", "failure": Failure(stage="verify", message="differs")})
            if level == "full" and str(o.slots["scheme"]) in self.rejected
            else o
            for o in outcomes
        ]


def search(
    store: RunStore,
    evaluator: NullEvaluator | None = None,
    specs: Sequence[KernelSpec] = (synthetic_spec(),),
    control: RunControl | None = None,
    **settings: Any,
) -> tuple[SearchResult, Heard]:
    heard: Heard = []
    evaluator = evaluator or NullEvaluator(store=store, cost=synthetic_cost)
    run = run_search(
        specs,
        evaluator,
        store,
        SearchSettings(**settings),
        lambda k, d: heard.append((k, d)),
        control=control,
    )
    return asyncio.run(run), heard


@pytest.mark.parametrize("policy", ["builtin", "random", "cost-model"])
@pytest.mark.parametrize("batch", [1, 5])
def test_the_budget_is_spent_exactly_and_once_a_candidate(policy: str, batch: int, tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        evaluator = NullEvaluator(store=store, cost=synthetic_cost)
        result, heard = search(store, evaluator, policy=policy, batch=batch, budget=17)
        assert (result.screened, result.stop, result.interrupted) == (17, "budget", False)
        assert result.full_verdicts == 3
        assert evaluator.evaluations == 17 + 3
        lines = [json.loads(line) for line in (store.folder / "results.jsonl").read_text().splitlines()]
        assert max(Counter((line["candidate"], line["status"]) for line in lines).values()) == 1
        told = [d for k, d in heard if k == "outcome" and d["level"] == "screen"]
        assert [d["index"] for d in told] == list(range(1, 18))


def test_the_best_is_the_fastest_verified_and_descends_from_the_naive_kernel(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        result, heard = search(store, budget=40)
        assert result.best is not None
        assert result.best.status == "ok"
        screened = [d["estimated_us"] for k, d in heard if k == "outcome" and d["level"] == "screen"]
        assert result.best.cost_us == pytest.approx(min(screened))
        assert result.best.cost_us < 0.6 * landscape_us(synthetic_spec().naive)
        family = [store.get_candidate(c) for c in result.lineage]
        assert family[0].values == synthetic_spec().naive
        assert family[0].parent is None
        assert [c.parent for c in family[1:]] == [c.id for c in family[:-1]]
        assert family[-1].id == result.best.candidate
        assert len(family) >= 3


def test_events_tell_the_story_and_are_kept(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        _, heard = search(store, budget=12, batch=2)
        kinds = [kind for kind, _ in heard]
        assert {"phase", "proposed", "outcome", "incumbent", "round"} == set(kinds)
        costs = [data["cost_us"] for kind, data in heard if kind == "incumbent"]
        assert costs == sorted(costs, reverse=True)
        assert [event.kind for event in store.events()] == kinds
        edits = [data["edits"] for kind, data in heard if kind == "proposed"]
        owners = {slot.name: slot.owner for slot in synthetic_spec().slots}
        assert all(owners[slot] == role for edit in edits for role, own in edit.items() for slot in own)


def test_the_same_seed_gives_the_same_search_and_another_seed_another(tmp_path: Path) -> None:
    found = []
    for seed in (1, 1, 2):
        with new_store(tmp_path) as store:
            _, heard = search(store, budget=16, seed=seed, policy="random")
            found.append([data["candidate"] for kind, data in heard if kind == "proposed"])
    assert found[0] == found[1] != found[2]


def test_default_screens_the_naive_kernel_alone(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        result, _ = search(store, policy="default")
        assert (result.screened, result.stop) == (1, "exhausted")
        assert result.best is not None
        assert result.best.slots == synthetic_spec().naive


def test_the_planner_compares_families_and_stays_with_the_faster(tmp_path: Path) -> None:
    specs = [synthetic_spec("slow9"), synthetic_spec("quick"), synthetic_spec("mid3")]
    with new_store(tmp_path) as store:
        result, heard = search(store, specs=specs, budget=24)
        opening = [d["family"] for k, d in heard if k == "outcome"][:3]
        assert opening == ["slow9", "quick", "mid3"]
        assert next(d["family"] for k, d in heard if k == "round") == "quick"
        assert result.screened == 24
        assert result.best is not None
        assert result.best.family == "quick"


def test_a_family_that_is_hopeless_by_estimate_is_not_begun(tmp_path: Path) -> None:
    quick, hopeless = synthetic_spec("quick"), synthetic_spec("hopeless")
    crawling = replace(hopeless.device, dram_bytes_per_s=hopeless.device.dram_bytes_per_s / 1000)
    specs = [replace(hopeless, device=crawling), quick, synthetic_spec("mid3")]
    with new_store(tmp_path) as store:
        _, heard = search(store, specs=specs, budget=12)
        families = [data["family"] for kind, data in heard if kind == "outcome"]
        assert families[:2] == ["quick", "mid3"]
        assert "hopeless" not in families


@pytest.mark.parametrize(("own_us", "kept", "label"), [(120.0, "composer", "library"), (60.0, "gemm", "own")])
def test_of_a_product_the_faster_of_own_kernel_and_library_is_kept(
    own_us: float, kept: str, label: str, tmp_path: Path
) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "matmul.py"
    device = model_for("sm_90")
    ways = plan(capture(load_problem(str(path))), device=device).ways
    specs = [spec for way in ways for spec in specs_for(way, device)]

    def cost(candidate: Candidate) -> float:
        """The library takes 100 us, own kernels never less than `own_us`."""
        if candidate.family == "composer":
            return 100.0
        return own_us + int(candidate.id[:4], 16) % 50

    with new_store(tmp_path) as store:
        evaluator = NullEvaluator(store=store, cost=cost, measured=True)
        result, _ = search(store, evaluator, specs, budget=20)
        assert result.best is not None
        assert (result.best.family, result.best.provenance) == (kept, label)
        assert result.screened == 20


def test_a_family_that_fails_leaves_the_last_verdict_to_another(tmp_path: Path) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "matmul.py"
    device = model_for("sm_90")
    ways = plan(capture(load_problem(str(path))), device=device).ways
    specs = [spec for way in ways for spec in specs_for(way, device)]

    class Precise(NullEvaluator):
        async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
            outcomes = await super().evaluate(candidates, level=level)
            failed = Failure(stage="verify", message="rounds")
            wrong = {"status": "wrong", "failure": failed}
            fails = (level == "full" and one.family == "gemm" for one in outcomes)
            return [one.model_copy(update=wrong) if bad else one for one, bad in zip(outcomes, fails, strict=True)]

    def cost(candidate: Candidate) -> float:
        return 100.0 if candidate.family == "composer" else 50.0 + int(candidate.id[:4], 16) % 50

    with new_store(tmp_path) as store:
        judge = Precise(store=store, cost=cost, measured=True)
        result, _ = search(store, judge, specs, budget=20, full_verdicts=2)
        assert result.full_verdicts == 2
        assert result.best is not None
        assert result.best.family == "composer"


def test_a_rejected_favourite_leaves_the_verdict_to_the_next(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        judge = Judge(cost=synthetic_cost)
        judge.rejected = ("shuffle", "atomics")
        result, _ = search(store, judge, budget=20)
        assert result.full_verdicts <= 4
        assert result.best is not None
        assert result.best.slots["scheme"] == "tree"


def test_nothing_verified_gives_no_best(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        judge = Judge(cost=synthetic_cost)
        judge.rejected = ("shuffle", "atomics", "tree")
        result, _ = search(store, judge, budget=10)
        assert result.best is None
        assert result.full_verdicts == 4


class Flaky(NullEvaluator):
    """The machine fails every candidate the first few times it is asked."""

    def __init__(self, times: int) -> None:
        super().__init__(cost=synthetic_cost)
        self.times = times
        self.asked: Counter[str] = Counter()

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        failure = Failure(stage="infrastructure", message="the worker died")
        found = []
        for outcome in await super().evaluate(candidates, level=level):
            self.asked[outcome.candidate] += 1
            broken = level == "screen" and self.asked[outcome.candidate] <= self.times
            update = {"status": "infrastructure_error", "failure": failure}
            found.append(outcome.model_copy(update=update) if broken else outcome)
        return found


def test_a_failing_machine_is_tried_twice_and_says_nothing_of_the_candidate(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        result, heard = search(store, Flaky(1), budget=6)
        assert result.best is not None
        assert {d["status"] for k, d in heard if k == "outcome"} == {"screened", "ok"}
    with new_store(tmp_path) as store:
        result, heard = search(store, Flaky(9), budget=6)
        assert result.best is None
        assert result.screened == 6
        assert {d["status"] for k, d in heard if k == "outcome"} == {"infrastructure_error"}


@pytest.mark.parametrize(
    ("slot", "value", "status", "stage", "kind"),
    [
        ("unroll", 8, "compile_error", "compile", "spill"),
        ("block", 1024, "launch_error", "launch", "too_many_threads"),
    ],
)
def test_a_planted_fault_at_the_start_is_mended_within_four(
    slot: str, value: int, status: Any, stage: Any, kind: str, tmp_path: Path
) -> None:
    planted = PlantedFailure(slot, value, status, stage, kind)
    with new_store(tmp_path) as store:
        evaluator = NullEvaluator(store=store, cost=synthetic_cost, failures=[planted])
        _, heard = search(store, evaluator, start={slot: value}, budget=8)
        told = [data for event, data in heard if event == "outcome"]
        assert told[0]["status"] == status
        assert "screened" in [data["status"] for data in told[1:5]]
        assert next(data["round"] for event, data in heard if event == "round") == "repair"


def test_minutes_and_patience_end_a_search(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        assert search(store, minutes=0.0)[0].stop == "minutes"
    with new_store(tmp_path) as store:
        flat = NullEvaluator(store=store, cost=lambda candidate: 10.0)
        result, _ = search(store, flat, patience=10)
        assert result.stop == "plateau"
        assert 10 <= result.screened <= 16


def test_a_drain_stops_it_and_resume_completes_it_with_a_larger_budget(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        control = RunControl()
        control.request_drain()
        result, _ = search(store, control=control, budget=9)
        assert result.interrupted
        result, _ = search(store, budget=9, resume=True)
        assert (result.screened, result.stop) == (9, "budget")
        result, _ = search(store, budget=15, resume=True)
        assert (result.screened, result.stop) == (15, "budget")
        assert result.best is not None


def test_checkpoints_stay_small(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        search(store, budget=40)
        rows = sqlite3.connect(store.folder / "checkpoints.db").execute("select checkpoint from checkpoints").fetchall()
        assert max(len(row[0]) for row in rows) < 20_000
        sources = [store.get_candidate(o.candidate).source.encode() for o in store.outcomes()]
        assert not any(source in row[0] for row in rows for source in sources)


def test_bad_input_names_the_remedy(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        with pytest.raises(UserError, match="choose one of builtin"):
            search(store, policy="oracle")
        with pytest.raises(UserError, match="--budget 0"):
            search(store, budget=0)
        with pytest.raises(UserError, match="start values cannot run"):
            search(store, start={"block": 1024, "items": 8, "vector": 4})
        (store.folder / "checkpoints.db").write_bytes(b"not a database, and long enough to be looked at" * 40)
        with pytest.raises(UserError, match=r"checkpoints\.db is damaged"):
            search(store, resume=True)


def test_the_generated_page_is_current() -> None:
    page = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "graph_doc.py"))
    assert page["PATH"].read_text() == page["document"](), "run scripts/graph_doc.py"
