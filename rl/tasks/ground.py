"""Questions about a space, and who judges the combinations that replies mean: one role's change, or a joint round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from warpsmith.agents.llm.records import Message
from warpsmith.kernels.records import Outcome
from warpsmith.kernels.slots import Values
from warpsmith.rl.credit import Arm, credit
from warpsmith.rl.tasks.questions import Question
from warpsmith.rl.train.rejudge import Again
from warpsmith.rl.train.task import Hole, Scored

Agents = Literal["roles", "single", "team"]
"""A question for each role on a base, one for an agent that sets all slots, or a joint round of all roles."""
NOT_OF_ITS_FORM = "the reply is not of its form"
_SAYS_NOTHING = ("infrastructure_error", "not_measured")
"""Statuses of a second verdict that contradict no first one."""


class Ground(Protocol):
    """Where combinations are judged."""

    @property
    def name(self) -> str:
        """Of the problem or the table."""

    def outcomes(self, wanted: Sequence[Values | None]) -> Sequence[Outcome]:
        """In order. None is a reply that is not of its form; what cannot run is rejected without being built."""

    def again(self, wanted: Sequence[Values]) -> Sequence[tuple[Outcome, Outcome]] | None:
        """The first and the second verdict on each of these, all of which passed. None where there is nobody to
        ask."""

    def scored(self, outcome: Outcome, random: int) -> Scored:
        """What an outcome is worth, held against so many verified random candidates."""


@dataclass(frozen=True)
class RoleTask:
    """One question: a role's on a base, or that of an agent that sets all slots."""

    ground: Ground
    question: Question
    random: int
    """Verified random candidates that replies are held against; 0: none."""
    label: str = ""
    """Stands for the name of ground and role."""

    @property
    def name(self) -> str:
        """Of ground and role."""
        return self.label or f"{self.ground.name}:{self.question.role}"

    @property
    def messages(self) -> Sequence[Message]:
        """As a search by a local model asks."""
        return self.question.messages

    @property
    def schema(self) -> dict[str, Any]:
        """The legal values of the role's slots."""
        return dict(self.question.schema)

    @property
    def code(self) -> tuple[str, ...]:
        """The code slots that the reply may rewrite."""
        return tuple(slot.name for slot in self.question.code)

    def score(self, replies: Sequence[str]) -> list[Scored]:
        """By the ground's verdict, all other slots as in the base."""
        outcomes = self.ground.outcomes([self.question.values(text) for text in replies])
        return [self.ground.scored(one, self.random) for one in outcomes]

    def again(self, replies: Sequence[str]) -> list[Again] | None:
        """By a second verdict; replies are some that passed the first."""
        wanted = [values for text in replies if (values := self.question.values(text)) is not None]
        return doubted(self.name, self.ground, wanted, self.random)


@dataclass(frozen=True)
class TeamTask:
    """A joint round: every role answers on the same base, none knows what the others say, and their changes together
    are one candidate."""

    ground: Ground
    questions: Sequence[Question]
    """All of one base."""
    random: int
    arm: Arm = "shared"

    @property
    def name(self) -> str:
        """Of the problem."""
        return f"{self.ground.name}:team"

    @property
    def roles(self) -> Sequence[RoleTask]:
        """A question each."""
        return [RoleTask(self.ground, one, self.random) for one in self.questions]

    def values(self, texts: Sequence[str]) -> Values | None:
        """The combination that the replies mean together; None where one of them is not of its form."""
        own = [question.own(text) for question, text in zip(self.questions, texts, strict=True)]
        values = dict(self.questions[0].base)
        for one in own:
            if one is None:
                return None
            values |= one
        return values

    def score(self, replies: Sequence[tuple[str, ...]]) -> list[Scored]:
        """By the ground's verdict on what the roles made together."""
        outcomes = self.ground.outcomes([self.values(texts) for texts in replies])
        return [self.ground.scored(one, self.random) for one in outcomes]

    def again(self, replies: Sequence[tuple[str, ...]]) -> list[Again] | None:
        """By a second verdict; replies are some that passed the first."""
        wanted = [values for texts in replies if (values := self.values(texts)) is not None]
        return doubted(self.name, self.ground, wanted, self.random)

    def credit(self, replies: Sequence[tuple[str, ...]], advantages: Sequence[float]) -> list[list[float]]:
        """Of the credit's arm. A role that left its slots as they were earns what all earn, or nothing where each is
        paid for its own change."""
        changes = [
            {one.role: one.changes(text) for one, text in zip(self.questions, texts, strict=True)} for texts in replies
        ]
        found = credit(
            changes, np.asarray(advantages, dtype=np.float64), np.ones(len(replies), dtype=bool), arm=self.arm
        )
        return [
            [own.get(one.role, idle(self.arm, advantage)) for one in self.questions]
            for own, advantage in zip(found.roles, advantages, strict=True)
        ]


def idle(arm: Arm, reward: float) -> float:
    """What a role earns that changed nothing."""
    return 0.0 if arm == "counterfactual" else reward


def doubted(name: str, ground: Ground, wanted: Sequence[Values], random: int) -> list[Again] | None:
    """What second verdicts say of combinations that passed."""
    verdicts = ground.again(wanted)
    return None if verdicts is None else [_again(name, ground, *one, random) for one in verdicts]


def _again(name: str, ground: Ground, first: Outcome, again: Outcome, random: int) -> Again:
    if taken_back(first, again):
        message = again.failure.message if again.failure is not None else "no reason is known"
        hole = Hole(task=name, candidate=again.candidate, status=again.status, message=message)
        return Again(ground.scored(again, random), hole)
    return Again(ground.scored(first, random) if again.status == "ok" else None)


def taken_back(first: Outcome, again: Outcome) -> bool:
    """Whether a second verdict contradicts a pass."""
    return first.status == "ok" and again.status != "ok" and again.status not in _SAYS_NOTHING
