"""Owns how long one launch may take: ten seconds, or what WARPSMITH_LAUNCH_TIMEOUT_S says."""

from __future__ import annotations

import math
import os

from warpsmith.kernels.errors import UserError

VARIABLE = "WARPSMITH_LAUNCH_TIMEOUT_S"
USUAL_S = 10.0
"""A run of a whole plan that takes longer is a hang: the slowest honest one is a serial pass over the
memory."""


def launch_timeout_s() -> float:
    """Seconds after which a launch is a hang. UserError where the variable holds no usable number."""
    text = os.environ.get(VARIABLE)
    if not text:
        return USUAL_S
    try:
        wanted = float(text)
    except ValueError:
        wanted = math.nan
    if not (math.isfinite(wanted) and wanted > 0):
        raise UserError(f"{VARIABLE}={text}: give a finite positive number of seconds, or unset it for {USUAL_S:g} s")
    return wanted
