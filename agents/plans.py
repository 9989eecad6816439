"""What a planner that is a model is asked: which family, or free-form, the search goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class PlanOption:
    """A way the region can be computed."""

    name: str
    """Of the family, or `freeform`."""
    doc: str
    tried: int
    """Candidates so far."""
    best_us: float | None
    """The cheapest of them; None where none was correct."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """Everything that the planner's answer may depend on."""

    options: tuple[PlanOption, ...]
    current: str | None
    """The option that was searched up to now; None where they were only compared."""
    label: Literal["measured", "estimated"]
    """How the costs were had."""
    stale: int
    """Candidates since the last progress."""
    left: int
    """Candidates that may still be tried."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """Of the incumbent, those of the planner's concern."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Counter -> how it was had."""
    notes: tuple[str, ...] = ()
    """What the person said, oldest first."""


@runtime_checkable
class Planner(Protocol):
    """A policy whose planner has a say in what is searched."""

    def plan(self, question: PlanQuestion) -> str | None:
        """The name of one of the options, or None: no opinion. A pure function of the question."""
