"""Index algebra: whatever chain of views is applied, the expressions give the indices numpy gives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from warpsmith.kernels.indexing import Algebra, Expr, Term, row_major


def factors(rng: random.Random, number: int) -> list[int]:
    """A random shape with that many elements."""
    shape = []
    while number > 1:
        divisor = rng.choice([d for d in range(2, number + 1) if number % d == 0])
        shape.append(divisor)
        number //= divisor
    return shape


@pytest.mark.parametrize("seed", range(200))
def test_random_chains_of_views(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([12, 24, 30, 36, 48, 60])
    shape = factors(rng, count)
    sizes = {f"a{i}": size for i, size in enumerate(shape)}
    algebra = Algebra(sizes)
    index = [algebra.axis(axis) for axis in sizes]
    truth = list(np.meshgrid(*(np.arange(size) for size in shape), indexing="ij"))
    point = dict(zip(sizes, truth, strict=True))
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(["permute", "flip", "reshape"])
        if kind == "permute":
            order = rng.sample(range(len(shape)), len(shape))
            index, truth, shape = ([part[i] for i in order] for part in (index, truth, shape))
        elif kind == "flip":
            dim = rng.randrange(len(shape))
            index[dim] = algebra.affine(index[dim], -1, shape[dim] - 1)
            truth = [shape[d] - 1 - t if d == dim else t for d, t in enumerate(truth)]
        else:
            flat = sum(t * s for t, s in zip(truth, row_major(shape), strict=True))
            old, shape = shape, factors(rng, count)
            index, truth = list(algebra.reshape(index, old, shape)), list(np.unravel_index(flat, shape))
    for expr, expected in zip(index, truth, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(expr.at(point), expected.shape), expected)
    low, high = algebra.bounds(algebra.linear(index, row_major(shape)))
    assert low <= 0
    assert high >= count - 1


def test_exact_division_by_ranges() -> None:
    algebra = Algebra({"a": 5, "b": 12})
    flat = algebra.linear([algebra.axis("a"), algebra.axis("b")], [12, 1])
    assert algebra.divide(flat, 12) == algebra.axis("a")
    assert algebra.modulo(flat, 12) == algebra.axis("b")
    assert algebra.divide(flat, 4) == Expr((Term("a", 3), Term("b", 1, div=4)))
    assert algebra.modulo(flat, 4) == Expr((Term("b", 1, mod=4),))


def test_quotient_and_remainder_join_again() -> None:
    algebra = Algebra({"a": 60})
    axis = algebra.axis("a")
    assert algebra.linear(algebra.split(axis, (3, 4, 5)), (20, 5, 1)) == axis


def test_a_sum_that_no_axis_divides_stays_exact() -> None:
    algebra = Algebra({"a": 3, "b": 4})
    flat = algebra.linear([algebra.axis("a"), algebra.axis("b")], [4, 1])
    third = algebra.divide(flat, 3)
    assert [[third.at({"a": a, "b": b}) for b in range(4)] for a in range(3)] == [
        [0, 0, 0, 1],
        [1, 1, 2, 2],
        [2, 3, 3, 3],
    ]
    assert third.stride("a") is None
    assert third.axes == {"a", "b"}
    assert algebra.add(algebra.affine(third, 3), algebra.modulo(flat, 3)) == flat


def test_text_is_c() -> None:
    expr = Expr((Term("k0", 3), Term("r0", 1, div=4, mod=2)), 7)
    assert expr.c_text() == "(long long)k0 * 3 + (((long long)r0 / 4) % 2) + 7"
    assert Expr().c_text() == "0"
