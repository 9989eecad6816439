"""Whose kernels took the time: shares come from a record of every step, or they are not told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from warpsmith.app.wording import verdict_text
from warpsmith.kernels.records import (
    Buffer,
    Candidate,
    Failure,
    KernelStep,
    LaunchPlan,
    LibraryStep,
    Outcome,
    Quantiles,
)  # fmt: skip
from warpsmith.sandbox.worker import RemoteError
from warpsmith.tools.profiling.insight import Insight
from warpsmith.tools.profiling.provenance import (
    LIBRARY_BELOW,
    StepSamples,
    attribute,
    disagreement,
    measured_provenance,
    needs_measuring,
)  # fmt: skip

OWN = KernelStep(kernel="scale", grid=(64, 1, 1), block=(256, 1, 1), args=("in0", "out0"))
LIBRARY = LibraryStep(library="mm", args=("in0", "in1"), out="tmp0")
HYBRID = LaunchPlan(buffers={"tmp0": Buffer(dtype="float32", shape=(8,))}, steps=(LIBRARY, OWN))


def samples(*rows: tuple[float, ...], empty: float = 1.5, failure: Failure | None = None) -> StepSamples:
    return StepSamples(device="gpu:recorded", rows=rows, empty=(empty,) * len(rows), failure=failure)


def timed(plan: LaunchPlan, us: float = 100.0, provenance: str = "hybrid") -> tuple[Outcome, Candidate]:
    candidate = Candidate(source="", plan=plan)
    outcome = Outcome.model_validate(
        {"candidate": candidate.id, "problem_hash": "0", "status": "ok", "verified_on": "gpu:recorded",
         "provenance": provenance, "time_us": Quantiles(p10=us, p50=us, p90=us, n=9).model_dump()}
    )  # fmt: skip
    return outcome, candidate


def attributed(plan: LaunchPlan, answer: Any, **more: Any) -> Outcome:
    """What the evaluator makes of a worker's answer."""
    outcome, candidate = timed(plan, **more)

    async def call(job: str, payload: dict[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer.model_dump(mode="json")

    return asyncio.run(Insight().attributed(outcome, candidate, call, {}))


def test_a_share_is_the_median_of_each_step_less_what_events_cost() -> None:
    found = attribute(HYBRID, samples((81.5, 21.5), (81.5, 21.5), (500.0, 21.5)))
    assert found is not None
    assert found.steps_us == (80.0, 20.0)
    assert found.own_share == pytest.approx(0.2)


def test_one_kernel_among_twenty_operators_is_told_as_the_little_it_does() -> None:
    plan = LaunchPlan(steps=(*(LIBRARY,) * 20, OWN))
    found = attribute(plan, samples(*[(11.5,) * 20 + (6.5,)] * 5))
    assert found is not None
    assert found.own_share == pytest.approx(5 / 205)
    assert measured_provenance("hybrid", found.own_share) == "library"


@pytest.mark.parametrize("rows", [(), ((10.0,),), ((10.0, 5.0), (10.0,)), ((10.0, 5.0, 5.0),)])
def test_a_lost_record_gives_no_share(rows: tuple[tuple[float, ...], ...]) -> None:
    assert attribute(HYBRID, samples(*rows)) is None


def test_every_launch_has_a_record_of_its_own_however_short() -> None:
    """Attribution is by step, not by a window of time: a hundred kernels of 5 us are a hundred records."""
    plan = LaunchPlan(steps=(OWN,) * 99 + (LIBRARY,))
    found = attribute(plan, samples(*[(6.5,) * 100] * 3))
    assert found is not None
    assert found.steps_us == (5.0,) * 100
    assert found.own_share == pytest.approx(0.99)


def test_zeroing_scratch_counts_as_own_work() -> None:
    plan = LaunchPlan(buffers={"acc": Buffer(dtype="float32", shape=(8,), init="zero")}, steps=(LIBRARY, OWN))
    found = attribute(plan, samples((6.5, 41.5, 6.5)))
    assert found is not None
    assert found.steps_us == (40.0, 5.0)
    assert found.own_share == pytest.approx(0.2)


def test_steps_too_short_to_be_seen_have_no_share() -> None:
    assert attribute(HYBRID, samples((1.5, 1.5))) is None


def test_provenance_is_measured_not_declared() -> None:
    assert measured_provenance("hybrid", LIBRARY_BELOW / 2) == "library"
    assert measured_provenance("hybrid", 0.5) == "hybrid"
    assert measured_provenance("own", 1.0) == "own"
    assert measured_provenance("hybrid", None) == "hybrid"


def test_a_single_own_kernel_needs_no_measuring() -> None:
    assert not needs_measuring(LaunchPlan(steps=(OWN,)))
    assert needs_measuring(LaunchPlan(steps=(OWN, OWN)))
    assert needs_measuring(LaunchPlan(steps=(LIBRARY,)))
    unasked = RuntimeError("the worker must not be asked")
    assert attributed(LaunchPlan(steps=(OWN,)), unasked, provenance="own").own_share == 1.0


def test_the_verdict_says_the_share() -> None:
    outcome = attributed(HYBRID, samples(*[(81.5, 21.5)] * 3))
    assert (outcome.own_share, outcome.steps_us, outcome.provenance) == (0.2, (80.0, 20.0), "hybrid")
    assert outcome.warnings == ()
    assert "own kernels take 20.0% of the device time, measured over 2 steps" in verdict_text(outcome)
    decoy = attributed(HYBRID, samples(*[(100.5, 2.5)] * 3))
    assert decoy.provenance == "library"


def test_what_was_not_measured_is_said_and_claims_nothing() -> None:
    hang = Failure(stage="launch", kind="hang", message="no end after 10 s")
    for answer in (samples((10.0,)), samples(failure=hang), RemoteError("KeyError: 'x'", "")):
        outcome = attributed(HYBRID, answer)
        assert (outcome.status, outcome.own_share, outcome.provenance) == ("ok", None, "hybrid")
        assert "share of own kernels was not measured" in outcome.warnings[0]


def test_steps_that_do_not_add_up_to_the_timed_whole_are_told() -> None:
    assert disagreement((60.0, 30.0), 100.0) is None
    assert "add up to 20.00 us" in (disagreement((10.0, 10.0), 100.0) or "")
    assert attributed(HYBRID, samples(*[(11.5, 11.5)] * 3)).warnings
    # One by one steps take longer than in a graph, never much less.
    graph = HYBRID.model_copy(update={"graph": True})
    slow = samples(*[(150.0, 150.0)] * 3)
    assert (bool(attributed(HYBRID, slow).warnings), attributed(graph, slow).warnings) == (True, ())
    assert attributed(graph, samples(*[(11.5, 11.5)] * 3)).warnings


def test_without_a_gpu_no_share_is_claimed(real_run: Any) -> None:
    lines = (real_run / "results.jsonl").read_text().splitlines()
    outcomes = [Outcome.model_validate_json(line) for line in lines]
    assert outcomes
    assert all(outcome.own_share is None and outcome.steps_us is None for outcome in outcomes)
