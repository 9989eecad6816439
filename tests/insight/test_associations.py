"""Which settings go with which failure: planted ones are found, chance ones are not, the order is fixed."""

from __future__ import annotations

import random

import pytest
from scipy.stats import fisher_exact

from warpsmith.kernels.records import Failure, Outcome
from warpsmith.tools.runs.associations import associations, failure_groups, fisher_tail, value_text
from warpsmith.tools.runs.store import RunStore


def drawn(count: int, seed: int = 3) -> list[dict[str, str]]:
    chance = random.Random(seed)
    return [
        {"block": chance.choice("abc"), "vector": chance.choice("12"), "hint": chance.choice("xyz"), "fixed": "0"}
        for _ in range(count)
    ]


def split(slots: list[dict[str, str]], **wanted: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    def hit(one: dict[str, str]) -> bool:
        return all(one[name] == value for name, value in wanted.items())

    return [one for one in slots if hit(one)], [one for one in slots if not hit(one)]


@pytest.mark.parametrize("table", [(3, 5, 1, 20), (5, 5, 0, 30), (1, 9, 4, 11), (0, 4, 3, 9)])
def test_the_tail_is_fishers(table: tuple[int, int, int, int]) -> None:
    a, failing, c, passing = table
    reference = fisher_exact([[a, failing - a], [c, passing - c]], alternative="greater").pvalue
    assert fisher_tail(a, failing, c, passing) == pytest.approx(reference)


def test_a_value_that_breaks_is_named_alone() -> None:
    failing, passing = split(drawn(80), block="a")
    tried, found = associations(failing, passing)
    assert [one.setting for one in found] == [(("block", "a"),)]
    only = found[0]
    assert (only.failing_with, only.failing) == (len(failing), len(failing))
    assert (only.passing_with, only.passing) == (0, len(passing))
    assert only.lift == pytest.approx(80 / len(failing))
    assert tried > 10


def test_a_pair_that_breaks_is_named_as_a_pair() -> None:
    failing, passing = split(drawn(120), block="a", vector="1")
    _, found = associations(failing, passing)
    assert [one.setting for one in found] == [(("block", "a"), ("vector", "1"))]


def test_two_causes_are_both_named() -> None:
    slots = drawn(120)
    failing = [one for one in slots if one["block"] == "a" or one["hint"] == "x"]
    passing = [one for one in slots if one not in failing]
    _, found = associations(failing, passing)
    assert {one.setting for one in found} == {(("block", "a"),), (("hint", "x"),)}


def test_chance_is_not_a_cause() -> None:
    slots = drawn(30)
    chance = random.Random(11)
    chance.shuffle(slots)
    _, found = associations(slots[:1], slots[1:])
    assert found == ()


def test_without_both_sides_nothing_is_told() -> None:
    slots = drawn(10)
    assert associations(slots, []) == (0, ())
    assert associations([], slots) == (0, ())


def test_the_order_of_the_lines_does_not_matter() -> None:
    failing, passing = split(drawn(80), hint="z")
    again = associations(failing[::-1], passing[::-1])
    assert again == associations(failing, passing)


def test_planted_failures_of_a_run_are_found_by_signature(large_run: RunStore) -> None:
    lines = list(large_run.lines())
    groups = failure_groups(lines)
    assert [group.signature for group in failure_groups(lines)] == [group.signature for group in groups]
    settings = {group.kind: [one.setting for one in group.associations] for group in groups}
    assert settings["mismatch"][0] == (("residency", "reread"),)
    assert any(("unroll", "4") in setting for setting in settings["spill"])
    failed = {one.candidate for one in large_run.outcomes() if not one.correct}
    assert {candidate for group in groups for candidate in group.candidates} == failed


def test_other_families_are_no_comparison() -> None:
    def one(candidate: str, family: str, broken: bool) -> Outcome:
        failure = Failure(stage="compile", message="broken") if broken else None
        status = "compile_error" if broken else "screened"
        return Outcome(
            candidate=candidate, problem_hash="0", status=status, family=family, slots={"block": 64}, failure=failure
        )  # fmt: skip

    (group,) = failure_groups([one("a", "row", True), one("b", "gemm", False)])
    assert (group.compared, group.associations) == (0, ())


def test_code_slots_are_named_by_hash() -> None:
    assert value_text("float v0 = x0;\nfloat v1 = v0;").startswith("text ")
    assert value_text("") == "(empty)"
    assert value_text(128) == "128"
