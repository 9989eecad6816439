"""Repair: planted spills and over-large launches are mended within four evaluations."""

from collections.abc import Callable

import pytest

from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.play import play
from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.repair import cause_of
from warpsmith.agents.rounds import next_round
from warpsmith.agents.synthetic import SLOTS, FormulaSpace, landscape_us, registers
from warpsmith.kernels.records import Failure
from warpsmith.kernels.slots import Values

NEEDS = {
    "registers": lambda v: {"registers": float(registers(v)), "threads": float(v["block"])},
    "none": dict,
}
SPILLING: Values = {
    "block": 256,
    "items": 8,
    "vector": 4,
    "residency": "registers",
    "unroll": 4,
    "fast_math": False,
    "scheme": "tree",
}


def spills(values: Values) -> Trial:
    """Above 96 registers the rest is spilled; the kernel runs."""
    over = max(0, registers(values) - 96)
    return Trial(values, landscape_us(values) * (1 + over / 16), spills=4 * over)


def refuses_spills(values: Values) -> Trial:
    """The same, as a compile failure."""
    if registers(values) <= 96:
        return Trial(values, landscape_us(values))
    return Trial(values, None, failure=Failure(stage="compile", message="registers spilled", kind="spill"))


def too_large(values: Values) -> Trial:
    """A launch that a block of over 256 threads does not survive."""
    if int(values["block"]) <= 256:
        return Trial(values, landscape_us(values))
    failure = Failure(stage="launch", message="invalid configuration", kind="too_many_threads")
    return Trial(values, None, failure=failure)


def shared_full(values: Values) -> Trial:
    """Shared residency does not fit above a tile of 512."""
    tile = int(values["block"]) * int(values["items"])
    if values["residency"] != "shared" or tile <= 512:
        return Trial(values, landscape_us(values))
    return Trial(values, None, failure=Failure(stage="launch", message="too much", kind="shared_memory"))


def evaluations_to_mend(
    answer: Callable[[Values], Trial], planted: Values, needs: str, batch: int, roles: bool = True
) -> int:
    """Evaluations after the planted one until one is healthy (or 99)."""
    space = FormulaSpace(SLOTS, {}, needs=NEEDS[needs], roles=roles)
    history = [answer(planted)]
    assert history[0].ailing
    step = 1
    while len(history) < 12:
        chosen = next_round(space, history, batch=batch, left=12)
        request = Request(
            space,
            tuple(history),
            chosen.kind,
            chosen.count,
            0,
            step,
            role=chosen.role,
            patient=chosen.patient,
        )
        for made in BuiltinPolicy().propose(request):
            told = answer(made.values)
            trial = Trial(
                made.values,
                told.cost,
                failure=told.failure,
                spills=told.spills,
                kind=chosen.kind,
                candidate=str(len(history)),
                base=made.base or "",
                step=step,
            )
            history.append(trial)
            if not trial.ailing:
                return len(history) - 1
        step += 1
    return 99


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("needs", ["registers", "none"])
@pytest.mark.parametrize(
    ("answer", "change"),
    [
        (spills, {}),
        (refuses_spills, {}),
        (refuses_spills, {"unroll": 8, "vector": 2}),
        (too_large, {"block": 1024, "residency": "none"}),
        (too_large, {"block": 512, "residency": "none"}),
        (shared_full, {"block": 512, "residency": "shared", "items": 8, "vector": 1, "unroll": 1}),
    ],
)
def test_planted_faults_are_mended_within_four(
    answer: Callable[[Values], Trial], change: Values, needs: str, batch: int
) -> None:
    assert evaluations_to_mend(answer, SPILLING | change, needs, batch) <= 4


def test_the_first_repair_is_made_by_an_owner_of_the_cause() -> None:
    space = FormulaSpace(SLOTS, {}, roles=True)
    patient = Trial(
        SPILLING | {"block": 1024},
        None,
        candidate="0",
        failure=Failure(stage="launch", message="", kind="too_many_threads"),
    )
    request = Request(space, (patient,), "repair", 1, 0, 1, patient=0)
    (made,) = BuiltinPolicy().propose(request)
    assert set(made.edits) == {"config"}
    assert int(made.values["block"]) < 1024
    assert made.base == "0"


def test_a_failure_without_known_cause_changes_the_slot_it_names() -> None:
    space = FormulaSpace(SLOTS, {}, roles=True)
    failure = Failure(stage="compile", message="expected a ';'", kind="syntax", slot="scheme")
    patient = Trial(space.naive | {"scheme": "atomics"}, None, candidate="0", failure=failure)
    (made,) = BuiltinPolicy().propose(Request(space, (patient,), "repair", 1, 0, 1, patient=0))
    assert made.values == space.naive


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (Failure(stage="launch", message="", kind="too_many_threads"), "threads"),
        (Failure(stage="launch", message="too many resources requested for launch"), "registers"),
        (Failure(stage="launch", message="", kind="shared_memory"), "shared_memory"),
        (Failure(stage="compile", message="", kind="spill"), "registers"),
        (Failure(stage="compile", message="expected expression"), "other"),
    ],
)
def test_causes_are_read_from_kind_then_message(failure: Failure, cause: str) -> None:
    assert cause_of(Trial({}, None, failure=failure)) == cause


def test_a_search_that_cannot_be_mended_ends_and_tries_other_things() -> None:
    def broken(values: Values) -> Trial:
        return Trial(values, None, failure=Failure(stage="compile", message="no", kind="spill"))

    history = play(FormulaSpace(SLOTS, {}, roles=True), BuiltinPolicy(), broken, budget=20, seed=0)
    assert len(history) == 20
    assert len({tuple(t.values.values()) for t in history}) == 20
