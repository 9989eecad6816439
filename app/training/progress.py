"""What a person sees of a training while it goes on: a line an update, and what takes long in between."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warpsmith.app.display import Display

SILENCE_S = 10.0
"""Seconds without a line after which what is under way is told."""
_SHOWN = ("reward/mean", "verified", "percentile/mean", "entropy", "eval/percentile")


@dataclass
class Progress:
    """Tells a display of updates, evaluations and waits."""

    display: Display
    steps: int
    """Updates of the whole training."""
    clock: Callable[[], float] = time.monotonic
    _told: float = field(init=False)
    """When the last line was told."""

    def __post_init__(self) -> None:
        self._told = self.clock()

    def phase(self, text: str) -> None:
        """A stage began."""
        self._told = self.clock()
        self.display.phase(text)

    def update(self, step: int, figures: Mapping[str, float]) -> None:
        """An update as an event and as a line; the evaluation before the first one as a line."""
        known = {name: value for name, value in figures.items() if math.isfinite(value)}
        if step:
            self.display.event("update", {"step": step, "figures": known})
        told = ", ".join(f"{name} {known[name]:.3f}" for name in _SHOWN if name in known)
        head = f"update {step}/{self.steps}" if step else "before the first update"
        self.phase(f"{head}{': ' + told if told else ''}")

    def doing(self, what: str, seconds: float) -> None:
        """What is under way, where nothing was told for long."""
        if self.clock() - self._told >= SILENCE_S:
            self.phase(f"{what}, for {seconds:.0f} s")
