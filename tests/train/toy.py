"""A task whose scores are known: a value for each of three slots, the score falls with the distance from the best."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.agents.llm.records import Message
from warpsmith.rl.train.sampler import LiveTasks
from warpsmith.rl.train.settings import LoraSettings, ModelSettings, SamplingSettings, TrainSettings
from warpsmith.rl.train.task import Scored, group_relative

LEGAL: dict[str, list[Any]] = {
    "threads": [64, 128, 256, 512],
    "vector": [1, 2, 4, 8],
    "residency": ["none", "shared", "reread"],
}
"""48 combinations."""


@dataclass(frozen=True)
class ToyTask:
    """Choose the best combination."""

    name: str = "toy"
    best: tuple[int, int, int] = (2, 1, 1)
    failing: frozenset[int] = frozenset()
    """Values of `threads` whose replies cannot be judged."""

    @property
    def messages(self) -> Sequence[Message]:
        """What the model is told."""
        return (
            Message(role="system", content="You set a kernel."),
            Message(role="user", content=f"{self.name}: choose."),
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The legal values."""
        return {"type": "object", "properties": {name: {"enum": values} for name, values in LEGAL.items()}}

    @property
    def code(self) -> tuple[str, ...]:
        """None."""
        return ()

    def cost(self, values: dict[str, Any]) -> float:
        """Microseconds: 10 at the best."""
        steps = [abs(LEGAL[name].index(values[name]) - best) for name, best in zip(LEGAL, self.best, strict=True)]
        return 10.0 * (1 + 0.5 * steps[0] + 0.3 * steps[1] + 0.7 * (steps[2] > 0))

    def every(self) -> list[float]:
        """The costs of all combinations."""
        return [
            self.cost(dict(zip(LEGAL, combination, strict=True)))
            for combination in (
                (a, b, c) for a in LEGAL["threads"] for b in LEGAL["vector"] for c in LEGAL["residency"]
            )
        ]

    def score(self, replies: Sequence[str]) -> Sequence[Scored]:
        """Reward and percentile by the known costs."""
        every, found = self.every(), []
        for reply in replies:
            values = json.loads(reply)
            if values["threads"] in self.failing:
                found.append(Scored(None, verified=False))
                continue
            cost = self.cost(values)
            beaten = sum(other > cost for other in every) + 0.5 * sum(other == cost for other in every)
            found.append(Scored(-math.log(cost), percentile=beaten / len(every)))
        return found


def settings(folder: Path, **more: Any) -> TrainSettings:
    """Of a training on the tiny model."""
    chosen: dict[str, Any] = {
        "model": ModelSettings(path=folder, device="cpu", lora=LoraSettings(rank=8, alpha=16)), "steps": 4,
        "learning_rate": 1e-2, "max_grad_norm": 1.0, "sampling": SamplingSettings(group_size=8), "checkpoint_every": 0,
        "micro_batch": 8,
    }  # fmt: skip
    return TrainSettings(**(chosen | more))


def live(made: TrainSettings, *tasks: Any) -> LiveTasks:
    """Batches of these tasks, or of one toy."""
    return LiveTasks(tasks or (ToyTask(),), made.sampling, group_relative, made.seed)
