"""Owns how long one launch may take: ten seconds, or what WARPSMITH_LAUNCH_TIMEOUT_S says."""

from __future__ import annotations

from warpsmith.kernels.environment import positive_number

VARIABLE = "WARPSMITH_LAUNCH_TIMEOUT_S"
USUAL_S = 10.0
"""A run of a whole plan that takes longer is a hang: the slowest honest one is a serial pass over the
memory."""


def launch_timeout_s() -> float:
    """Seconds after which a launch is a hang. UserError where the variable holds no usable number."""
    remedy = f"give a finite positive number of seconds, or unset it for {USUAL_S:g} s"
    return positive_number(VARIABLE, remedy) or USUAL_S
