"""How slot policies learn while they search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Noise = Literal["targeted", "uniform", "none"]
"""Who is disturbed on a plateau: the role that has settled most or whose turn it is, everybody, nobody."""


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Of an update."""

    rate: float = 0.1
    """Adam's learning rate for biases, in logits."""
    pair_rate: float = 0.05
    """For pairs: a logit has as many of them as there are earlier decisions."""
    epochs: int = 4
    clip_low: float = 0.2
    clip_high: float = 0.28
    """A decision whose ratio has left the interval in the direction of its advantage adds no gradient."""
    cap: float = 2.0
    """Largest importance weight of what an older policy drew."""
    entropy: float = 0.01


@dataclass(frozen=True, slots=True)
class LearnSettings:
    """How a slot policy learns while it searches."""

    group: int = 8
    """New trials that an update waits for."""
    replay: int = 24
    """Earlier trials beside them: half the best, half drawn from all. Zero: on-policy alone."""
    noise: float = 0.05
    """Share of the uniform distribution in every decision."""
    plateau_noise: float = 0.4
    """The same for who is disturbed in an escape round."""
    disturb: Noise = "targeted"
    step: StepSettings = field(default_factory=StepSettings)
