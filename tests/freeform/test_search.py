"""Whole candidates in a search: written, mended by their complaint, handed over, given at the start, resumed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from freeform import kernels
from support.slow_search import new_store

from warpsmith.agents.complaint import complaint_of
from warpsmith.agents.freeform import FreeformTask
from warpsmith.agents.policy import Trial
from warpsmith.agents.rounds import WHOLE_REPAIRS, WRITE_AFTER, whole_patient, writing_round
from warpsmith.agents.scripted import ScriptedPolicy
from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.workbench import Bench, open_bench
from warpsmith.graph.run import run_search
from warpsmith.graph.state import Means, SearchSettings
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.records import Candidate, Failure
from warpsmith.tools.export import export
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore

TASK = FreeformTask((), (), None, "", "sm_90", "none", 1 << 16, None, 1 << 20)


def bench_of(folder: Path, text: str = kernels.RUNNING_MAX) -> Bench:
    path = kernels.problem(folder, text)
    return open_bench(str(path), device="cpu", arch="sm_90", overrides={}, inputs=None, mode="eval")


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, ScriptedPolicy]:
    """A problem that no family covers: three failures, then a right kernel, and nothing more."""
    folder = tmp_path_factory.mktemp("mended")
    faults = tuple(kernels.broken(what) for what in ("compile", "launch", "wrong"))
    policy = ScriptedPolicy(candidates=(*faults, kernels.running_max()))
    settings = OptimizeSettings(problem="", device="cpu", budget=4, out=folder / "runs")
    return optimize_bench(bench_of(folder), settings, QuietDisplay(), policy), policy


def test_failures_are_mended_by_their_complaint(mended: tuple[Finished, ScriptedPolicy]) -> None:
    finished, policy = mended
    # The first round asks for two.
    assert [request.kind for request in policy.asked] == ["freeform", "repair", "repair"]
    complaints = [request.complaint for request in policy.asked[1:] if request.complaint]
    assert [one.stage for one in complaints] == ["compile", "verify"]
    assert (complaints[0].line, complaints[0].kind) == (3, "error")
    assert "doubel" in complaints[0].message
    assert "inputs" not in complaints[1].message
    assert finished.exit_code == 0


def test_what_a_writer_is_told_holds_shapes_and_no_paths(mended: tuple[Finished, ScriptedPolicy]) -> None:
    _, policy = mended
    writing = policy.asked[0].writing
    assert writing is not None
    task = writing.task
    assert task.operators == ("cummax_0 = cummax(in0, 1, output=0)  # float32 6x96",)
    assert [one.name for one in task.operands] == ["in0", "out0"]
    assert task.region is None
    assert "/" not in task.reference


def test_the_winner_has_a_lineage_a_report_and_exports(mended: tuple[Finished, ScriptedPolicy], tmp_path: Path) -> None:
    finished, _ = mended
    best = finished.result.best
    assert best is not None
    assert (best.family, best.shape_specific, best.provenance) == ("freeform", True, "own")
    assert best.estimated_us is not None
    assert len(finished.result.lineage) >= 2
    page = (finished.folder / "report.html").read_text()
    assert "running_max" in page
    with RunStore.open(finished.folder, writable=False) as store:
        export(store, "cu", to=tmp_path)
        assert (tmp_path / "kernel.cu").read_text() == kernels.RUNNING_TEXT
        assert "class ModelNew" in (finished.folder / "best" / "model_new.py").read_text()
        rounds = [event.data["round"] for event in store.events() if event.kind == "proposed"]
        assert rounds == ["freeform", "freeform", "repair", "repair"]


def test_without_a_writer_the_error_names_the_operator(tmp_path: Path) -> None:
    with pytest.raises(NotYetError, match="cummax"):
        optimize_bench(bench_of(tmp_path), OptimizeSettings(problem="", out=tmp_path), QuietDisplay())


# on the synthetic family


def whole(number: int) -> Candidate:
    return kernels.softmax().model_copy(update={"source": f"{kernels.SOFTMAX_TEXT}// {number}"})


def cost(candidate: Candidate) -> float:
    return 5.0 if candidate.family == "freeform" else synthetic_cost(candidate)


def flat(candidate: Candidate) -> float:
    return 10.0


def searched(store: RunStore, policy: ScriptedPolicy, price: Any = cost, **settings: Any) -> list[dict[str, Any]]:
    evaluator = NullEvaluator(store=store, cost=price)
    heard: list[dict[str, Any]] = []
    listen = lambda kind, data: heard.append({"event": kind, **data})  # noqa: E731
    wanted = SearchSettings(**{"budget": 8, "batch": 2, **settings})
    means = Means(policy, TASK)
    asyncio.run(run_search([synthetic_spec()], evaluator, store, wanted, listen, means=means))
    return heard


def test_the_planner_hands_the_region_over(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        policy = ScriptedPolicy(candidates=(whole(0), whole(1)), handed=frozenset({1}))
        heard = searched(store, policy)
        proposed = [one for one in heard if one["event"] == "proposed"]
        assert [one["whole"] for one in proposed][:4] == [False, False, True, True] or proposed[2]["whole"]
        best = store.best()
        assert best is not None
        assert best.family == "freeform"


def test_a_long_plateau_asks_for_a_whole_candidate(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        policy = ScriptedPolicy(candidates=(whole(0), whole(1)))
        heard = searched(store, policy, flat, budget=24)
        first = next(
            i for i, one in enumerate(o for o in heard if o["event"] == "outcome") if one["family"] == "freeform"
        )
        assert first >= WRITE_AFTER
        assert [request.kind for request in policy.asked][:1] == ["freeform"]


def test_a_whole_start_is_judged_first_and_is_the_root(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        start = whole(7)
        store.put_candidate(start)
        policy = ScriptedPolicy(candidates=(whole(0), whole(1)))
        heard = searched(store, policy, start_candidate=start.id)
        outcomes = [one for one in heard if one["event"] == "outcome"]
        assert outcomes[0]["candidate"] == start.id
        assert policy.asked[0].writing is not None
        assert policy.asked[0].writing.base == store.get_candidate(start.id)
        roots = {o.candidate for o in store.outcomes() if o.parent is None}
        assert roots == {start.id}


def test_a_resumed_search_goes_on_with_what_was_written(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        start = whole(7)
        store.put_candidate(start)
        policy = ScriptedPolicy(candidates=(whole(0), whole(1)))
        searched(store, policy, budget=3, start_candidate=start.id)
        known = [o.candidate for o in store.outcomes()]
        searched(store, policy, budget=6, start_candidate=start.id, resume=True)
        assert [o.candidate for o in store.outcomes()][:3] == known
        assert len(store.outcomes()) == 6


# rounds


def trial(name: str, step: int, kind: Any, base: str | None = None, failed: bool = True) -> Trial:
    failure = Failure(stage="verify", kind="mismatch", message="off") if failed else None
    return Trial({}, None if failed else 1.0, failure=failure, kind=kind, candidate=name, base=base, step=step)


def test_a_lineage_is_mended_so_often_and_no_more() -> None:
    line = [trial("a", 1, "freeform")]
    for number in range(WHOLE_REPAIRS):
        assert whole_patient(line) == len(line) - 1
        line.append(trial(f"a{number}", 2 + number, "repair", line[-1].candidate))
    assert whole_patient(line) is None
    line.append(trial("b", 9, "freeform"))
    assert whole_patient(line) == len(line) - 1


def test_others_of_a_round_are_left_once_one_is_right() -> None:
    both = [trial("a", 1, "freeform"), trial("b", 1, "freeform")]
    assert whole_patient(both) == 0
    assert whole_patient([*both, trial("a0", 2, "repair", "a", failed=False)]) is None


def test_a_writer_that_gives_nothing_is_left_alone() -> None:
    ask = {"only": True, "batch": 4, "left": 9, "handed": False}
    assert writing_round([], [], **ask, idle=2) is not None
    assert writing_round([], [], **ask, idle=3) is None


@pytest.mark.parametrize(
    "message",
    [
        "out0 on `wide` inputs: 12 of 96 elements are off by more than 0.001",
        "on `tiny` inputs the result depends on the order in which threads ran",
    ],
)
def test_a_complaint_names_no_inputs(message: str) -> None:
    told = complaint_of(Failure(stage="verify", kind="mismatch", message=message)).message
    assert "`" not in told
    assert "inputs" not in told
