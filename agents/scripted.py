"""A policy that plays what it was given: code edits and whole candidates, for trying the search without a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.policy import Policy, Proposal, Request, proposal
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slots import SlotEdit, Values

Edits = Mapping[str, tuple[SlotEdit, ...]]


@dataclass(frozen=True)
class ScriptedPolicy:
    """Plays edits by number of the proposal round, else asks `other`; writes the candidates of a list in order."""

    edits: Mapping[int, Edits] = field(default_factory=dict)
    """Proposal round -> edits by role, made on the incumbent."""
    candidates: tuple[Candidate, ...] = ()
    """Given in order, those that were tried left out."""
    handed: frozenset[int] = frozenset()
    """Proposal rounds in which the first candidate is given in place of edits: the planner hands the region over."""
    other: Policy = field(default_factory=BuiltinPolicy)
    name: str = "scripted"
    asked: list[Request] = field(default_factory=list)
    """What it was asked to write."""

    def opening(self, space: SearchSpace) -> Values:
        """The other policy's."""
        return self.other.opening(space)

    def propose(self, request: Request) -> list[Proposal]:
        """The edits for this round, on the incumbent."""
        if request.step in self.handed and request.writing is not None and self.candidates:
            return [Proposal({}, None, {}, self.candidates[0])]
        if request.step not in self.edits:
            return self.other.propose(request)
        base = request.incumbent
        bare = proposal(request.space, {}, base, "")
        return [Proposal(bare.values, bare.base, self.edits[request.step])]

    def write(self, request: Request) -> list[Proposal]:
        """The next candidate of the list."""
        self.asked.append(request)
        tried = {trial.candidate for trial in request.history}
        fresh = [one for one in self.candidates if one.id not in tried]
        return [Proposal({}, None, {}, one) for one in fresh[: request.count]]
