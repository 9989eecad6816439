"""Training on recorded tables: searches one after another, each begun with the weights that the last one left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from warpsmith.agents.policy import Trial
from warpsmith.agents.recorded import TableSpace
from warpsmith.agents.slots.layout import View
from warpsmith.agents.slots.learner import Learner, Worth
from warpsmith.agents.slots.policy import SlotPolicy
from warpsmith.agents.slots.sampling import role_entropy
from warpsmith.agents.slots.settings import LearnSettings, Noise
from warpsmith.agents.slots.specialist import Specialist, specialist_of
from warpsmith.rl.credit import Arm
from warpsmith.rl.replay import curve, replay
from warpsmith.rl.slots.critic import CriticSettings, CriticWorth
from warpsmith.rl.slots.worth import RankedWorth
from warpsmith.tools.tables.table import Table

Algorithm = Literal["grpo", "ppo"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What is trained, and how long."""

    algorithm: Algorithm = "grpo"
    arm: Arm = "shared"
    """Of GRPO: how a reward is shared among roles. PPO's critic does that by itself."""
    view: View = "all"
    disturb: Noise = "targeted"
    searches: int = 4
    budget: int = 200
    """Evaluations a search."""
    seed: int = 0
    learn: LearnSettings = field(default_factory=LearnSettings)
    critic: CriticSettings = field(default_factory=CriticSettings)
    """Of PPO."""


@dataclass(frozen=True, slots=True)
class Searched:
    """One search of a training."""

    trials: tuple[Trial, ...]
    share: float
    """Optimum over the best found in it."""
    entropy: dict[str, float]
    """Role -> 0 to 1, once it had ended."""
    specialist: Specialist


def worth_of(settings: TrainSettings) -> Callable[[], Worth]:
    """Makes the rule of advantages for a search."""
    if settings.algorithm == "ppo":
        return lambda: CriticWorth(critic=settings.critic)
    return lambda: RankedWorth(settings.arm)


def trainee(settings: TrainSettings, start: tuple[Specialist, ...]) -> SlotPolicy:
    """The policy that learns in a search, begun from the nearest of `start`."""
    learn = replace(settings.learn, disturb=settings.disturb)
    return SlotPolicy(start, view=settings.view, settings=learn, worth=worth_of(settings))


def train(table: Table, settings: TrainSettings, start: tuple[Specialist, ...] = ()) -> Iterator[Searched]:
    """The searches of a training, as they end. The next one knows what the last one learnt and nothing of what it
    measured: each begins in a fresh space, so that its curve shows what the weights are worth."""
    for number in range(settings.searches):
        policy = trainee(settings, start)
        trials = tuple(replay(table, policy, budget=settings.budget, seed=settings.seed + number))
        learner = policy.learnt(TableSpace(table), trials)
        learner.finish()
        share = float(curve(table, trials, (settings.budget,))[0])
        made = made_by(settings, learner, table.name, number + 1)
        start = (specialist_of(learner.layout, learner.weights, made, learner.settings),)
        yield Searched(trials, share, role_entropy(learner.layout, learner.weights), start[0])


def made_by(settings: TrainSettings, learner: Learner, data: str, searches: int) -> dict[str, str | int | float]:
    """What a specialist says of its training."""
    return {
        "algorithm": settings.algorithm, "arm": settings.arm, "disturb": settings.disturb, "data": data,
        "searches": searches, "budget": settings.budget, "seed": settings.seed, "view": learner.layout.view,
    }  # fmt: skip
