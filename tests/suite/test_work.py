"""What a search that ended comes to in its suite: a row, another try, or the end of the suite."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.slow_search import new_store

from warpsmith.app.optimize import Finished
from warpsmith.app.suite.records import SuiteProblem
from warpsmith.app.suite.wire import Reply, SearchJob
from warpsmith.app.suite.work import reply_of
from warpsmith.graph.run import SearchResult
from warpsmith.kernels.records import Failure, Outcome, Quantiles, Speedup

PROBLEM: Any = SimpleNamespace(problem=SimpleNamespace(hash="h"))
"""As much of a bench as is asked for."""


@pytest.fixture
def reply(tmp_path: Path) -> Any:
    """The reply to a search with this end and these outcomes."""

    def made(*outcomes: Outcome, **end: Any) -> Reply:
        home = tmp_path / "runs" / "p"
        with new_store(home) as store:
            for outcome in outcomes:
                store.append_outcome(outcome)
        result = SearchResult(**{"best": None, "screened": len(outcomes), "full_verdicts": 0, "elapsed_s": 2.0} | end)
        job = SearchJob(
            problem=SuiteProblem(key="p", path="/p.py", name="p"), mode="eval", policy="builtin", budget=4, verdicts=2,
            counters="none", minutes=1.0, max_cost=None, price=(), seed=0, home=str(home), resume=None,
        )  # fmt: skip
        return reply_of(job, PROBLEM, Finished(store.folder, result, "d"))

    return made


def failed(status: Any, kind: str, number: int) -> Outcome:
    failure = Failure(stage="compile", kind=kind, message=f"{kind}: no\nmore")
    return Outcome(candidate=f"{number:016x}", problem_hash="h", status=status, failure=failure, compile_s=0.5)


def test_the_best_verdict_makes_the_row(reply: Any) -> None:
    best = Outcome(
        candidate="f" * 16, problem_hash="h", status="ok", family="row", provenance="hybrid", verified_on="gpu:X",
        time_us=Quantiles(p10=1.0, p50=2.0, p90=3.0, n=30), speedup={"eager": Speedup(value=2.0, low=1.9, high=2.1)},
        compile_s=0.25, verify_s=1.0, time_s=0.5,
    )  # fmt: skip
    made = reply(failed("wrong", "mismatch", 1), best, best=best, stop="budget", full_verdicts=1)
    row = made.row
    assert (row.status, row.provenance, row.family, row.speedup["eager"].value) == ("verified", "hybrid", "row", 2.0)
    assert (row.screened, row.failures, row.stop, row.seconds) == (2, {"wrong": 1}, "budget", 2.0)
    assert (row.compile_s, row.verify_s, row.time_s) == (0.75, 1.0, 0.5)
    assert row.run.startswith("runs/p/")


def test_nothing_verified_says_what_failed_most(reply: Any) -> None:
    outcomes = [failed("compile_error", "spill", n) for n in (1, 2)]
    made = reply(*outcomes, failed("wrong", "mismatch", 3), stop="budget")
    assert made.row.status == "unverified"
    assert made.row.reason == "2 x compile_error (spill): spill: no"


def test_faults_of_the_machine_are_no_verdict(reply: Any) -> None:
    made = reply(*(failed("infrastructure_error", "DeviceLost", n) for n in (1, 2)), stop="budget")
    assert made.row is None
    assert made.failure == "2 x infrastructure_error (DeviceLost): DeviceLost: no"
    # One that is the candidate's own is.
    assert reply(failed("infrastructure_error", "x", 1), failed("wrong", "mismatch", 2), stop="budget").row is not None


def test_a_lost_server_ends_the_suite_and_a_stop_leaves_the_problem_open(reply: Any) -> None:
    lost = reply(failed("wrong", "mismatch", 1), stop="server")
    assert lost.row is None
    assert "models' server" in lost.machine
    stopped = reply(failed("wrong", "mismatch", 1), stop="interrupted")
    assert (stopped.row, stopped.stopped, stopped.screened) == (None, True, 1)
