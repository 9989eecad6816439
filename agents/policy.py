"""The policy seam: what a policy is asked, what it may know, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from warpsmith.agents.complaint import Complaint
from warpsmith.agents.freeform import FreeformTask
from warpsmith.agents.llm.records import ReplyRef
from warpsmith.agents.observation import Observation
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.kernels.records import Candidate, Failure, Outcome
from warpsmith.kernels.slots import SlotEdit, Values

Kind = Literal["start", "joint", "refine", "repair", "escape", "freeform"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated combination."""

    values: Values
    """Of the choice slots, and the texts of those code slots that were edited."""
    cost: float | None
    """Microseconds; None where the candidate failed or was not costed."""
    margin: float = 0.0
    """Relative half-width of the cost's interval."""
    failure: Failure | None = None
    spills: int = 0
    kind: Kind = "joint"
    role: str | None = None
    candidate: str = ""
    base: str | None = None
    """Candidate id that it was derived from."""
    step: int = 0

    @property
    def telling(self) -> bool:
        """Whether its outcome says something of the values: a broken machine does not."""
        return self.failure is None or self.failure.stage != "infrastructure"

    @property
    def failed(self) -> bool:
        """Whether the candidate itself failed, in whatever way."""
        return self.failure is not None and self.telling

    @property
    def ailing(self) -> bool:
        """Whether a repair is called for: it could not be built or launched, or it spills registers."""
        stages = ("rules", "compile", "launch")
        return self.spills > 0 or (self.failure is not None and self.failure.stage in stages)


def trial_of(outcome: Outcome, values: Values, kind: Kind, *, role: str | None, base: str | None, step: int) -> Trial:
    """A trial from a recorded outcome. The margin is a normal estimate of the median's 95 % interval."""
    margin = 0.0
    if outcome.time_us is not None and outcome.time_us.p50 > 0:
        sigma = (outcome.time_us.p90 - outcome.time_us.p10) / 2.563
        margin = 1.96 * 1.253 * sigma / (max(outcome.time_us.n, 1) ** 0.5) / outcome.time_us.p50
    return Trial(
        values=values,
        cost=outcome.cost_us if outcome.correct else None,
        margin=margin,
        failure=outcome.failure,
        spills=outcome.spills or 0,
        kind=kind,
        role=role,
        candidate=outcome.candidate,
        base=base,
        step=step,
    )


@dataclass(frozen=True, slots=True)
class Writing:
    """What a whole candidate is written for, and from what."""

    task: FreeformTask
    base: Candidate | None = None
    """The candidate to mend or to improve on; None: there is none yet."""
    best_us: float | None = None
    """Cost of the fastest candidate so far, of any family."""
    best_is: Literal["measured", "estimated"] | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """A candidate from which the search was told to go on, and the round from which that holds."""

    candidate: str
    since: int

    def line(self, history: Sequence[Trial]) -> set[str]:
        """The root and what descends from it in rounds since then."""
        line = {self.candidate}
        for trial in history:
            if trial.step >= self.since and trial.base in line:
                line.add(trial.candidate)
        return line


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a policy. Everything that its answer may depend on is in here."""

    space: SearchSpace
    history: tuple[Trial, ...]
    kind: Kind
    count: int
    seed: int
    step: int
    role: str | None = None
    """The acting role of a refine or repair round; in an escape round the one that is disturbed (None:
    all)."""
    patient: int | None = None
    """Repair rounds: index in `history` of the trial to mend."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    complaint: Complaint | None = None
    """Repair rounds: what is wrong with the patient."""
    writing: Writing | None = None
    """Set where whole candidates may be given: with `Proposal.candidate` by any round, by `Writer.write` always."""
    root: Root | None = None
    """Where a person told the search to go on from."""
    rejected: tuple[Values, ...] = ()
    """Combinations that a person did not want evaluated."""
    notes: tuple[str, ...] = ()
    """What the person said, oldest first."""

    def rng(self) -> np.random.Generator:
        """The request's own stream of random numbers: the same for the same (seed, step)."""
        return np.random.default_rng([self.seed, self.step])

    @property
    def incumbent(self) -> Trial | None:
        """The cheapest trial so far; after a checkout the cheapest of what descends from it since."""
        costed = [trial for trial in self.history if trial.cost is not None]
        if self.root is not None:
            line = self.root.line(self.history)
            costed = [trial for trial in costed if trial.candidate in line] or costed
        return min(costed, key=lambda trial: trial.cost or 0.0, default=None)

    @property
    def seen(self) -> set[Point]:
        """Points that were already tried, or that a person does not want."""
        grid = Grid(self.space)
        return {grid.point(values) for values in (*(trial.values for trial in self.history), *self.rejected)}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A combination to evaluate, as edits by roles on a base."""

    values: Values
    base: str | None
    """Candidate id that the edits apply to; None for the first kernel of a search."""
    edits: Mapping[str, tuple[SlotEdit, ...]]
    """Role -> its edits. Roles that changed nothing are left out."""
    candidate: Candidate | None = None
    """A whole free-form candidate: source and plan count, values and edits do not. From `propose` it says that the
    planner gives the region to free-form."""
    replies: Mapping[str, tuple[ReplyRef, ...]] = field(default_factory=dict)
    """Role -> the replies that its part came from, the one that counts last. Roles without a model are left out."""
    by: str | None = None
    """The policy that made it, where that is not the one that was asked."""


class Policy(Protocol):
    """Stateless: proposals are a pure function of the request, so a resumed run proposes the same again."""

    @property
    def name(self) -> str:
        """As the command line knows it."""

    def opening(self, space: SearchSpace) -> Values:
        """What the planner compares families by: one valid combination of this space."""

    def propose(self, request: Request) -> list[Proposal]:
        """At most `request.count` valid combinations that are not in the history; none: nothing left to
        try."""


@runtime_checkable
class Writer(Protocol):
    """A policy that can write whole candidates: device code and launch plan."""

    def write(self, request: Request) -> list[Proposal]:
        """At most `request.count` proposals with a candidate. `request.space` has no slots, `request.history` are the
        whole candidates so far, `request.writing` says what to compute. A round of kind `repair` names its patient
        and the complaint; else `request.writing.base`, if any, is what to improve on. Pure, as `propose` is."""


@runtime_checkable
class Interruptible(Protocol):
    """A policy whose answers may take long."""

    def interrupt(self) -> None:
        """Breaks off the questions under way, from any thread; each raises."""


def proposal(space: SearchSpace, values: Values, base: Trial | None, why: str) -> Proposal:
    """A proposal whose edits are the difference to the base (or to the naive kernel), split by owner. Code slots that
    `values` does not name keep the base's text."""
    before = space.naive | {slot.name: slot.default for slot in space.code_slots} | (base.values if base else {})
    names = {role: list(own) for role, own in space.groups.items()}
    for slot in space.code_slots:
        names.setdefault(slot.owner, []).append(slot.name)
    edits: dict[str, tuple[SlotEdit, ...]] = {}
    for role, owned in names.items():
        own = tuple(SlotEdit(n, values[n], why) for n in owned if n in values and values[n] != before[n])
        if own:
            edits[role] = own
    return Proposal(values=values, base=base.candidate if base and base.candidate else None, edits=edits)
