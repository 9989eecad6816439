"""Observations: the little that a role is shown, built from recorded outcomes and the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels.slots import Values

@dataclass(frozen=True)
class Observation:
    role: str
