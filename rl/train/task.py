"""What a model is trained on: tasks that score replies, and the samples that came of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from warpsmith.agents.llm.records import Message
from warpsmith.agents.local.decisions import Decisions
from warpsmith.kernels.records import Record


@dataclass(frozen=True, slots=True)
class Scored:
    """What came of one reply."""

    reward: float | None
    """Higher is better, comparable within the task alone; None: an error of the infrastructure, which says nothing
    about the reply."""
    verified: bool = True
    """Whether it may be imitated."""
    percentile: float | None = None
    """Share of a fixed set of verified random candidates of the task that it beats; 0 where it is not verified, None
    where nobody knows."""
    outcome: Any = None
    """What a rule of advantages may want to know besides: measurements, an interval."""


class Task(Protocol):
    """A question with a form, and a judge of its answers. Where sampling and training overlap, `score` may be called by
    the sampler and by an evaluation on held-out tasks at once."""

    @property
    def name(self) -> str:
        """Unique among the tasks of a training; the key of its groups."""

    @property
    def messages(self) -> Sequence[Message]:
        """The chat up to where the reply begins."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the reply; its enums are the legal values."""

    @property
    def code(self) -> tuple[str, ...]:
        """Names of the fenced blocks behind the JSON."""

    def score(self, replies: Sequence[str]) -> Sequence[Scored]:
        """One for each reply, in order. An exception ends the training: what fails on the way is a `Scored` without
        a reward."""


@runtime_checkable
class Team(Protocol):
    """Questions whose replies make one candidate together: a joint round, in which no role knows what the others say.
    It is scored as a whole, and the replies of each role are a group of their own."""

    @property
    def name(self) -> str:
        """Unique among the tasks of a training."""

    @property
    def roles(self) -> Sequence[Task]:
        """A question for each role. They are scored together, not by their own `score`."""

    def score(self, replies: Sequence[tuple[str, ...]]) -> Sequence[Scored]:
        """One for each, in order; of a reply the texts of all roles. As `Task.score`."""

    def credit(self, replies: Sequence[tuple[str, ...]], advantages: Sequence[float]) -> Sequence[Sequence[float]]:
        """[replies][roles]: what each role earns of a reply's advantage. Members of one group, those alone that have a
        reward."""


Asked = Task | Team
"""What a group answers."""

Advantages = Callable[[Sequence[Scored]], Sequence[float]]
"""The members of a group that have a reward -> their advantages. All zeros: the group teaches nothing."""


class Sample(Record):
    """One reply of a group, as it is trained on and as it is stored."""

    task: str
    group: int
    """Number within its batch."""
    version: int
    """Of the policy that wrote it; -1 where it came from elsewhere."""
    decisions: Decisions
    text: str
    reward: float | None
    verified: bool
    percentile: float | None
    advantage: float


class Hole(Record):
    """A candidate that a judge passed and, asked once more, did not: the judge has a hole."""

    task: str
    candidate: str
    """Its content hash."""
    status: str
    """Of the second verdict."""
    message: str
    """What it says is wrong."""


class Batch(Record):
    """Samples that are trained on together, groups whole and next to each other."""

    index: int
    version: int
    """Of the policy that wrote them."""
    samples: tuple[Sample, ...]
    sampling_s: float
    scoring_s: float
    refilled: int = 0
    """Groups that were sampled beyond those that were due, in place of some that teach nothing."""
    rejudged: int = 0
    """Second verdicts of the hack watch; `rejudge_lost`: those that the machine's failures left unsaid."""
    rejudge_lost: int = 0
    holes: tuple[Hole, ...] = ()


def group_relative(scored: Sequence[Scored], *, scale: bool = True) -> list[float]:
    """Rewards less their mean; `scale`: over their standard deviation. A group of one earns 0."""
    rewards = [one.reward for one in scored if one.reward is not None]
    if len(rewards) != len(scored):
        raise ValueError("members without a reward belong to no group")
    if len(rewards) < 2 or min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in rewards) / (len(rewards) - 1))
    return [(one - mean) / (deviation + 1e-4 if scale else 1.0) for one in rewards]


def winners(share: float) -> Advantages:
    """Rejection fine-tuning: 1 for the best `share` of the verified members, at least one, and 0 for the others.
    Equals of the last one that is in are in."""

    def chosen(scored: Sequence[Scored]) -> list[float]:
        rewards = sorted((one.reward for one in scored if one.verified and one.reward is not None), reverse=True)
        if not rewards:
            return [0.0] * len(scored)
        least = rewards[max(int(len(rewards) * share), 1) - 1]
        return [float(one.verified and one.reward is not None and one.reward >= least) for one in scored]

    return chosen


def judged(scored: Sequence[Scored], advantages: Advantages) -> list[float]:
    """The advantage of each member; members without a reward leave the statistics and get 0."""
    counted = [one for one in scored if one.reward is not None]
    found = iter(advantages(counted) if counted else ())
    return [float(next(found)) if one.reward is not None else 0.0 for one in scored]
