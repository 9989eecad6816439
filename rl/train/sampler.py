"""Samples batches: groups of replies to tasks, written by a policy, scored, and given their advantages."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from warpsmith.agents.local.batch import Wanted, write_many
from warpsmith.agents.local.decode import Written
from warpsmith.agents.local.grammar import Grammar
from warpsmith.kernels.errors import UserError
from warpsmith.rl.train.group import Member, earned, members, roles, scores
from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.rejudge import Group, HackWatch
from warpsmith.rl.train.settings import SamplingSettings, TrainSettings
from warpsmith.rl.train.task import (
    Advantages,
    Asked,
    Batch,
    Hole,
    Sample,
    Scored,
    Task,
    Team,
    group_relative,
    judged,
    winners,
)


class Source(Protocol):
    """Where batches come from."""

    def batch(self, index: int, policy: Policy, check: Callable[[], None]) -> Batch:
        """The batch of this number. The same number and weights give the same batch, but for what scoring measures.
        `check` ends the sampling by raising."""


class Writer(Protocol):
    """Who writes replies."""

    def __call__(
        self, policy: Policy, asked: Sequence[tuple[Task, int]], settings: SamplingSettings, check: Callable[[], None]
    ) -> Sequence[Written | None]:
        """A reply for each task and seed, with log-probabilities of the policy; None where none of its form came."""


@dataclass(frozen=True, slots=True)
class LiveTasks:
    """Batches from tasks that the policy answers now."""

    tasks: Sequence[Asked]
    settings: SamplingSettings
    advantages: Advantages
    seed: int
    writer: Writer | None = None
    """None: the policy itself, in this process."""
    watch: HackWatch | None = None
    """Who doubts verdicts; None: nobody."""

    def batch(self, index: int, policy: Policy, check: Callable[[], None]) -> Batch:
        """`settings.tasks` groups; every task has its turn before any has a second one. A reply that did not come in
        its form is missing from its group. Groups that teach nothing give way to further ones, `settings.refill` at
        most."""
        chosen = [self.tasks[at] for at in turns(len(self.tasks), index, self.settings.tasks, self.seed)]
        asked = _Asked(self, index, policy, check)
        groups = asked.groups(chosen)
        left = self.settings.refill
        while left and (flat := [place for place, group in enumerate(groups) if group.flat]):
            fresh = asked.groups(self._others(index, [groups[at].task for at in flat], asked.count)[:left])
            left -= len(fresh)
            # Those that teach nothing as well are dropped: they would only make room for each other.
            taught = (group for group in fresh if not group.flat)
            for place, group in zip(flat, taught, strict=False):
                groups[place] = group
        samples = [one for group in _numbered(groups) for one in group.samples(policy.version)]
        return Batch(
            index=index, version=policy.version, samples=tuple(samples), sampling_s=asked.sampling_s,
            scoring_s=asked.scoring_s, refilled=self.settings.refill - left, rejudged=asked.rejudged,
            rejudge_lost=asked.lost, holes=asked.holes,
        )  # fmt: skip

    def _others(self, index: int, flat: Sequence[Asked], count: int) -> list[Asked]:
        """A task for each group that taught nothing: another one's turn, where there are others."""
        names = {task.name for task in flat}
        others = [task for task in self.tasks if task.name not in names] or list(self.tasks)
        order = random.Random(f"{self.seed}:{index}:{count}").sample(others, len(others))
        return [order[at % len(order)] for at in range(len(flat))]


@dataclass(frozen=True, slots=True)
class _Group:
    """A group with what each role earned of it."""

    task: Asked
    members: Sequence[Member]
    scored: Sequence[Scored]
    advantages: Sequence[tuple[float, ...]]
    """[members][roles]."""
    number: int = 0
    """Within the batch, of the first role."""

    @property
    def flat(self) -> bool:
        """Whether it teaches nothing."""
        return all(advantage == 0 for own in self.advantages for advantage in own)

    def samples(self, version: int) -> list[Sample]:
        """Role by role: the replies of one role are a group."""
        return [
            sample(role.name, self.number + place, version, member.written[place], scored, own[place])
            for place, role in enumerate(roles(self.task))
            for member, scored, own in zip(self.members, self.scored, self.advantages, strict=True)
        ]


def _numbered(groups: Sequence[_Group]) -> list[_Group]:
    """With numbers that leave one to each role."""
    numbers = itertools.accumulate((len(roles(group.task)) for group in groups), initial=0)
    return [replace(group, number=number) for group, number in zip(groups, numbers, strict=False)]


@dataclass(slots=True)
class _Asked:
    """What is asked for one batch, and how long that took."""

    source: LiveTasks
    index: int
    policy: Policy
    check: Callable[[], None]
    count: int = 0
    """Groups so far."""
    sampling_s: float = 0.0
    scoring_s: float = 0.0
    rejudged: int = 0
    lost: int = 0
    holes: tuple[Hole, ...] = ()

    def groups(self, tasks: Sequence[Asked]) -> list[_Group]:
        """A group of replies to each of these tasks."""
        source = self.source
        started = time.monotonic()
        asked = [self._questions(task, group) for group, task in enumerate(tasks, self.count)]
        written = (source.writer or replies)(
            self.policy, [one for own in asked for one in own], source.settings, self.check
        )
        sampled = time.monotonic()
        self.count += len(tasks)
        left = iter(written)
        made = [members(task, list(itertools.islice(left, len(own)))) for task, own in zip(tasks, asked, strict=True)]
        first: list[Sequence[Scored]] = []
        for task, some in zip(tasks, made, strict=True):
            self.check()
            first.append(scores(task, some))
        scored = self._doubted(tasks, made, first)
        self.sampling_s += sampled - started
        self.scoring_s += time.monotonic() - sampled
        return [
            _Group(task, some, found, earned(task, some, found, judged(found, source.advantages)))
            for task, some, found in zip(tasks, made, scored, strict=True)
        ]

    def _questions(self, task: Asked, group: int) -> list[tuple[Task, int]]:
        """Each question of a group with a seed for each member, role after role."""
        source = self.source
        own = {role.name: (role.name,) if isinstance(task, Team) else () for role in roles(task)}
        return [
            (role, seed_of(source.seed, self.index, group, member, *own[role.name]))
            for role in roles(task)
            for member in range(source.settings.group_size)
        ]

    def _doubted(
        self, tasks: Sequence[Asked], made: Sequence[Sequence[Member]], scored: Sequence[Sequence[Scored]]
    ) -> Sequence[Sequence[Scored]]:
        """The scores after the hack watch has looked."""
        if self.source.watch is None:
            return scored
        self.check()
        said = [[one.said for one in some] for some in made]
        found = self.source.watch.look([Group(*one) for one in zip(tasks, said, scored, strict=True)])
        self.rejudged += found.judged
        self.lost += found.lost
        self.holes += found.holes
        return found.scored


@dataclass(frozen=True, slots=True)
class Collected:
    """Batches from groups that were collected before: each group once, then all again in another order."""

    groups: Sequence[Sequence[Sample]]
    settings: SamplingSettings
    advantages: Advantages
    seed: int

    def __post_init__(self) -> None:
        """UserError where nothing was collected."""
        if not any(self.groups):
            raise UserError("training: no group was collected; `warpsmith rollout` writes them")

    def batch(self, index: int, policy: Policy, check: Callable[[], None]) -> Batch:
        """`settings.tasks` groups, with advantages by this training's rule."""
        check()
        samples: list[Sample] = []
        for group, at in enumerate(turns(len(self.groups), index, self.settings.tasks, self.seed)):
            members = self.groups[at]
            scored = [Scored(one.reward, one.verified, one.percentile) for one in members]
            samples += [
                one.model_copy(update={"group": group, "advantage": advantage, "version": -1})
                for one, advantage in zip(members, judged(scored, self.advantages), strict=True)
            ]
        return Batch(index=index, version=policy.version, samples=tuple(samples), sampling_s=0.0, scoring_s=0.0)


def advantage_rule(settings: TrainSettings, rule: Advantages | None = None) -> Advantages:
    """The rule of a stage: the best are imitated in rft; else the given one, or rewards relative to their group."""
    if settings.stage == "rft":
        return winners(settings.winners)
    return rule or functools.partial(group_relative, scale=settings.scale_rewards)


def turns(count: int, index: int, size: int, seed: int) -> list[int]:
    """Which of `count` have their turn in a batch of `size`: rounds through all, each in an order of its own."""
    found = []
    for place in range(index * size, (index + 1) * size):
        order = list(range(count))
        random.Random(f"{seed}:{place // count}").shuffle(order)
        found.append(order[place % count])
    return found


def seed_of(*parts: Any) -> int:
    """A seed from anything that tells one reply from all others."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big")


def replies(
    policy: Policy, asked: Sequence[tuple[Task, int]], settings: SamplingSettings, check: Callable[[], None]
) -> list[Written]:
    """A reply for each task and seed. UserError where a task has no room in the model's context."""
    policy.sample_mode()
    found: list[Written] = []
    for some in _pieces(asked, settings.together):
        wanted = [_wanted(policy, task, seed, settings) for task, seed in some]
        with policy.autocast():
            found += write_many(policy.local, wanted, check=check)
    return found


def _wanted(policy: Policy, task: Task, seed: int, settings: SamplingSettings) -> Wanted:
    local = policy.local
    grammar = Grammar(local.vocabulary, task.schema, task.code, text=settings.text, lines=settings.lines)
    prompt, room = tuple(local.prompt(task.messages)), grammar.most()
    if local.context is not None and len(prompt) + room > local.context:
        raise UserError(
            f"task {task.name}: its prompt is {len(prompt)} tokens and its reply up to {room}, the model takes "
            f"{local.context}; write fewer text or lines under [sampling]"
        )
    return Wanted(prompt, grammar, seed, settings.temperature, room, settings.explore)


def _pieces(asked: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(asked), size):
        yield asked[start : start + size]


def sample(task: str, group: int, version: int, written: Written, scored: Scored, advantage: float) -> Sample:
    """A member of a group."""
    return Sample(
        task=task, group=group, version=version, decisions=written.decisions, text=written.text, reward=scored.reward,
        verified=scored.verified, percentile=scored.percentile, advantage=advantage,
    )  # fmt: skip
