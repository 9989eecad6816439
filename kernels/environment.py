"""Numbers that the environment sets."""

from __future__ import annotations

import math
import os

from warpsmith.kernels.errors import UserError


def positive_number(variable: str, remedy: str, *, least: float = 0.0) -> float | None:
    """What the variable holds; None where it is not set. UserError with the remedy for anything but a finite positive
    number of at least `least`."""
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0 and value >= least):
        raise UserError(f"{variable}={text}: {remedy}")
    return value
