"""A problem as tasks: replies become candidates, and the judge's full check says what came of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import SpecSpace
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Failure, Outcome, content_hash
from warpsmith.kernels.slots import Values
from warpsmith.rl.credit import Arm
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import NOT_OF_ITS_FORM, Agents, RoleTask, TeamTask, taken_back
from warpsmith.rl.tasks.questions import one_question, role_questions, team_questions
from warpsmith.rl.tasks.scoring import random_values, scored, verified_costs
from warpsmith.rl.train.sampler import seed_of
from warpsmith.rl.train.task import Scored

Judge = Callable[[Sequence[Candidate]], Sequence[Outcome]]
"""`evaluate` at level full, from any thread; outcomes in the order of the candidates."""
Told = Callable[[Candidate, Outcome, Outcome], None]
"""Hears of a hole of the judge: the candidate, the verdict that passed it, and the one that did not."""
_SPARE = 4
"""Random combinations that are drawn for each verified one that is wanted."""


@dataclass
class LiveProblem:
    """What the tasks of one problem share: the space, its base, and the costs of random candidates."""

    name: str
    spec: KernelSpec
    judge: Judge
    rewards: RewardSettings
    second: Judge | None = None
    """The same by a fresh session with seeds of its own, which looks nothing up; None: nobody doubts a verdict."""
    told: Told = lambda candidate, first, again: None
    _space: SpecSpace = field(init=False)
    _yardsticks: dict[int, tuple[float, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refuted: dict[str, Outcome] = field(default_factory=dict)
    """Candidate -> the second verdict, where that took back the first one."""

    def __post_init__(self) -> None:
        self._space = SpecSpace(self.spec)
        self.base: Values = self._space.sensible()
        (self.incumbent,) = self.outcomes([self.base])
        if self.incumbent.status != "ok":
            failure = self.incumbent.failure
            raise UserError(
                f"{self.name}: its first kernel does not pass ({self.incumbent.status}: "
                f"{failure.message if failure else 'no reason is known'}), so there is nothing to start from; leave "
                "the problem out, or make it smaller with a list file's NAME=LITERAL"
            )

    def tasks(
        self, agents: Agents, resources: PolicyResources, random: int, *, arm: Arm = "shared", code: bool = False
    ) -> list[RoleTask | TeamTask]:
        """One for each role that has a choice, one for an agent that sets all slots, or one for a team, whose credit is
        of `arm`. `random`: verified random candidates that replies are held against; 0: none. `code`: roles that act
        alone write their code slots as well."""
        if agents == "single":
            return [RoleTask(self, one_question(self._space, resources), random)]
        if agents == "team":
            questions = team_questions(self._space, resources, (self.base, self.incumbent))
        else:
            questions = role_questions(self._space, self.base, self.incumbent, resources, code=code)
        if not questions:
            raise UserError(f"{self.name}: no role has anything to choose at this size; leave the problem out")
        if agents == "team":
            return [TeamTask(self, questions, random, arm)]
        return [RoleTask(self, one, random) for one in questions]

    def outcomes(self, wanted: Sequence[Values | None]) -> list[Outcome]:
        """In order. Combinations that cannot run are rejected without being built."""
        found: list[Outcome | None] = [self._refused(values) for values in wanted]
        built = [
            (place, self.spec.emit(values))
            for place, (values, refused) in enumerate(zip(wanted, found, strict=True))
            if refused is None and values is not None
        ]
        judged = self.judge([candidate for _, candidate in built]) if built else []
        for (place, _), outcome in zip(built, judged, strict=True):
            found[place] = self._refuted.get(outcome.candidate, outcome)
        return [one for one in found if one is not None]

    def again(self, wanted: Sequence[Values]) -> list[tuple[Outcome, Outcome]] | None:
        """The first and the second verdict on each of these, all of which passed. A pass that is taken back is never
        believed again. None where there is nobody to ask."""
        if self.second is None:
            return None
        if not wanted:
            return []
        candidates = [self.spec.emit(values) for values in wanted]
        first, again = self.judge(candidates), self.second(candidates)
        for candidate, before, now in zip(candidates, first, again, strict=True):
            if taken_back(before, now):
                self._refuted[now.candidate] = now
                self.told(candidate, before, now)
        return list(zip(first, again, strict=True))

    def yardstick(self, count: int) -> tuple[float, ...]:
        """Costs in us of so many verified random candidates: the same ones for all roles and whatever the training's
        seed. Judged when they are first asked for."""
        with self._lock:
            if count not in self._yardsticks:
                drawn = random_values(self._space, _SPARE * count, seed_of("yardstick", self.name) % 2**63)
                self._yardsticks[count] = verified_costs(drawn, self.outcomes, self.rewards, count)
            return self._yardsticks[count]

    def scored(self, outcome: Outcome, random: int) -> Scored:
        """Against the base and so many verified random candidates."""
        yardstick = self.yardstick(random) if random else ()
        return scored(outcome, self.rewards, yardstick, base_us=self.incumbent.cost_us, incumbent=self.incumbent)

    def _refused(self, values: Values | None) -> Outcome | None:
        invalid = self._space.check(values) if values is not None else None
        if values is not None and invalid is None:
            return None
        message = invalid.message if invalid is not None else NOT_OF_ITS_FORM
        return Outcome(
            candidate=content_hash([self.name, values])[:16], problem_hash=content_hash(self.name), status="rejected",
            family=self.spec.family.name, slots=values or {}, provenance="own",
            failure=Failure(stage="rules", message=message, kind=invalid.kind if invalid is not None else "form"),
        )  # fmt: skip
