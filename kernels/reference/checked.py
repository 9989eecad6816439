"""What torch itself leaves open, closed in the processes that run a reference module: reads past a tensor's end, and
memory that nobody filled."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

_attention = functional.scaled_dot_product_attention


def check_calls() -> None:
    """Sizes are checked from now on wherever torch forgets to, in this process. nn.MultiheadAttention calls the same
    name."""
    functional.scaled_dot_product_attention = _checked_attention


def _checked_attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
    """torch (2.13, CPU) reads past the keys where there are more values than keys, and returns what lies there."""
    if key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            f"scaled_dot_product_attention: key {list(key.shape)} and value {list(value.shape)} differ in more than "
            "their last size"
        )
    return _attention(query, key, value, *rest, **named)


@contextmanager
def filled_memory() -> Iterator[None]:
    """Inside of the block torch.empty and its like are filled (NaN, or the largest whole number) instead of holding
    what was there before. Random draws and all other values stay what they are."""
    mode = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings():
        # Of this mode the filling alone is wanted (`torch.utils.deterministic.fill_uninitialized_memory`, on unless
        # somebody turns it off); what it has to say of other operators is nobody's concern here.
        warnings.simplefilter("ignore")
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
