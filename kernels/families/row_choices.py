"""Choosing slot values: search spaces of a bounded size, and powers of two around a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from math import prod

from warpsmith.kernels.records import SlotValue
from warpsmith.kernels.slots import Values

MOST_COMBINATIONS = 500
_COUNTABLE = 3000

Choices = dict[str, tuple[SlotValue, ...]]


def power_of_two_at_least(number: int) -> int:
    """Smallest power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()


def count_valid(choices: Mapping[str, tuple[SlotValue, ...]], valid: Callable[[Values], bool]) -> int:
    """Combinations of the choices that `valid` accepts."""
    names = tuple(choices)
    return sum(valid(dict(zip(names, values, strict=True))) for values in product(*choices.values()))


def bounded(
    choices: Choices, valid: Callable[[Values], bool], drops: Iterable[tuple[str, SlotValue]], keep: Values
) -> Choices:
    """Choices with values struck in the order of `drops` until at most MOST_COMBINATIONS are valid.

    Values named in `keep` (the naive and the expected best ones) and a slot's last value are never struck.
    """
    left = dict(choices)
    pending = [(name, value) for name, value in drops if keep.get(name) != value]
    while pending:
        size = prod(len(values) for values in left.values())
        if size <= MOST_COMBINATIONS:
            break
        if size <= _COUNTABLE and count_valid(left, valid) <= MOST_COMBINATIONS:
            break
        name, value = pending.pop(0)
        rest = tuple(other for other in left.get(name, ()) if other != value)
        if rest:
            left[name] = rest
    return left
