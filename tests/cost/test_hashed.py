"""Hashes of records that are kept, and results that are kept by object."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pytest

from warpsmith.kernels.hashed import ByObject, HashKept, hash_kept
from warpsmith.kernels.indexing import Expr, Term


class Counted:
    """A part of a record that counts how often it is asked for its hash."""

    asked = 0

    def __hash__(self) -> int:
        Counted.asked += 1
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted)


@hash_kept
@dataclass(frozen=True, slots=True)
class Pair(HashKept):
    """A record."""

    name: str
    part: object


def test_a_record_is_hashed_once_and_equal_ones_alike() -> None:
    Counted.asked = 0
    one = Pair("a", Counted())
    assert [hash(one) for _ in range(5)] == [hash(one)] * 5
    assert Counted.asked == 1
    assert hash(Pair("a", Counted())) == hash(one)
    assert {one: 1}[Pair("a", Counted())] == 1
    assert hash(replace(one, name="b")) == hash(Pair("b", Counted()))


def test_a_kept_hash_stays_out_of_copies() -> None:
    expression = Expr((Term("i", 3),), 4)
    hash(expression)
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert not hasattr(again, "_hash")
    assert "_hash" not in repr(again)


def test_a_record_without_room_is_refused() -> None:
    with pytest.raises(TypeError, match="HashKept"):
        hash_kept(Counted)


def test_results_are_kept_by_object_for_some_time() -> None:
    made: list[list[int]] = []

    def length(one: list[int]) -> int:
        made.append(one)
        return len(one)

    known = ByObject(length, most=4)
    lists = [[number] * number for number in range(6)]
    assert [known.of(one) for one in lists] == list(range(6))
    assert known.of(lists[5]) == 5
    assert len(made) == 6
    assert known.of([0] * 5) == 5
    assert len(made) == 7
    assert known.of(lists[0]) == 0
    assert len(made) == 8
