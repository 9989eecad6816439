"""The chat policy: language models play the roles; rounds, merging, and what happens where they do not agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.chat.context import RoleView, settings
from warpsmith.agents.chat.grammar import Crew
from warpsmith.agents.chat.legal import Key, key_of, open_slots
from warpsmith.agents.chat.planner import planned
from warpsmith.agents.chat.speak import Said, kept, speak, tell
from warpsmith.agents.chat.writer import written
from warpsmith.agents.llm.records import CapReached
from warpsmith.agents.plans import PlanQuestion
from warpsmith.agents.policy import Policy, Proposal, Request, Trial, proposal
from warpsmith.agents.repair import REMEDIES, cause_of
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.slots import Slot, Values

SIDE_BY_SIDE = 8
"""Questions that are open at once."""


@dataclass(frozen=True)
class ChatPolicy:
    """Every role is a question to a language model. What it proposes follows from the request and the kept replies."""

    name: str
    crew: Crew
    resources: PolicyResources
    filler: Policy = field(default_factory=BuiltinPolicy)
    """Proposes where the models say nothing new."""

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior: no model is asked before there is anything to tell it."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """The roles' edits, merged; what is missing in the round comes from the builtin policy.

        Raises CapReached where not even one proposal was had before the cap, and ServerUnusable.
        """
        turn = Turn.of(request)
        found = _naive_first(request)
        if turn.roles and len(found) < request.count:
            try:
                self._ask(turn, found)
            except CapReached:
                if not found:
                    raise
                return found
        return found if len(found) >= request.count else [*found, *self._filled(turn, found)]

    def write(self, request: Request) -> list[Proposal]:
        """Whole candidates by the writer's models. Raises CapReached and ServerUnusable."""
        return written(request, self.crew, self.resources)

    def plan(self, question: PlanQuestion) -> str | None:
        """The planner's choice among families and free-form; None where it gives no valid reply."""
        return planned(question, self.crew, self.resources)

    def interrupt(self) -> None:
        """Breaks off the questions under way: each raises Interrupted."""
        self.resources.interrupt()

    def _ask(self, turn: Turn, found: list[Proposal]) -> None:
        """Adds what the models propose to `found`."""
        request = turn.request
        wanted = range(request.count - len(found))
        jobs = [(index, role) for index in wanted for role in turn.roles]
        said = self._side_by_side([(turn.view(role), index) for index, role in jobs], turn)
        known = turn.known | {key_of(request.space, made.values) for made in found}
        for index in wanted:
            own = {one.role: one for one in said if one.index == index and one.failure is None}
            if not own:
                continue
            values, problem = turn.merged(own, known)
            if problem is not None:
                own = self._again(turn, own, index, values, problem)
                values, problem = turn.merged(own, known)
            if problem is not None:
                values, problem = turn.reconciled(own, known)
            if problem is None:
                known.add(key_of(request.space, values))
                found.append(turn.proposal(values, own))

    def _again(self, turn: Turn, own: Mapping[str, Said], index: int, values: Values, problem: str) -> dict[str, Said]:
        """One role is told what is wrong with the whole and answers once more."""
        roles = [role for role in turn.roles if role in own]
        role = roles[(turn.request.step + index) % len(roles)]
        mine = settings({n: v for n, v in values.items() if n in turn.names(role)})
        view = turn.view(role, f"You answered {mine}. {problem} Choose otherwise.")
        (said,) = self._side_by_side([(view, index)], turn)
        return {**own, role: said} if said.failure is None else dict(own)

    def _side_by_side(self, views: Sequence[tuple[RoleView, int]], turn: Turn) -> list[Said]:
        """Answers in the order of the views. An exception comes after all others have ended and were told of."""
        said: list[Said] = []
        stopped: Exception | None = None
        with ThreadPoolExecutor(max_workers=min(SIDE_BY_SIDE, len(views)), thread_name_prefix="ask") as pool:
            futures = [pool.submit(speak, view, index, self.crew, self.resources) for view, index in views]
            for future in futures:
                try:
                    said.append(future.result())
                except Exception as error:
                    stopped = stopped or error
                    continue
                tell(said[-1], turn.base, self.resources, turn.request.kind)
        if stopped is not None:
            raise stopped
        return said

    def _filled(self, turn: Turn, found: list[Proposal]) -> list[Proposal]:
        """What the builtin policy adds to a round, and the event that says so."""
        request = turn.request
        known = {key_of(request.space, made.values) for made in found}
        if any(slot.name in turn.base for slot in request.space.code_slots) and request.kind == "repair":
            # It chooses among values; a text that does not compile would spoil whatever it chooses.
            request = replace(request, kind="joint", patient=None, complaint=None)
        offered = self.filler.propose(request)
        fill = [made for made in offered if key_of(request.space, made.values) not in known]
        fill = [replace(made, by=self.filler.name) for made in fill[: request.count - len(found)]]
        if fill and turn.asked:
            self.resources.emit("filled", {"by": self.filler.name, "count": len(fill), "round": request.kind})
        return fill


@dataclass(frozen=True)
class Turn:
    """One round: who is asked, from which values, and how the answers become one combination."""

    request: Request
    base: Values
    trial: Trial | None
    """The trial that the edits apply to."""
    roles: tuple[str, ...]
    known: set[Key]
    asked: bool
    views: dict[str, RoleView] = field(default_factory=dict)
    """What each role is asked, without a note."""

    @classmethod
    def of(cls, request: Request) -> Turn:
        """The round that a request asks for."""
        space, trial = request.space, request.incumbent
        if request.kind == "repair" and request.patient is not None:
            trial = request.history[request.patient]
        base = space.naive | (trial.values if trial else space.sensible())
        values = (*(one.values for one in request.history), *request.rejected)
        known = {key_of(space, one) for one in values}
        turn = cls(request, base, trial, (), known, True)
        roles = [role for role in _acting(request) if turn.view(role).open or turn.view(role).code]
        return replace(turn, roles=tuple(roles), asked=bool(roles))

    def names(self, role: str) -> set[str]:
        """Names of a role's slots."""
        code = {slot.name for slot in self.request.space.code_slots if slot.owner == role}
        return code | set(self.request.space.groups.get(role, ()))

    def view(self, role: str, note: str = "") -> RoleView:
        """What the role is asked."""
        if role not in self.views:
            self.views[role] = self._view(role)
        return replace(self.views[role], note=note)

    def _view(self, role: str) -> RoleView:
        alone = self.request.kind in ("refine", "repair") or len(self.request.space.groups) == 1
        points: Collection[tuple[int, ...]] = {point for point, code in self.known if not code} if alone else ()
        code = self._code(role)
        space = self.request.space
        together = () if alone else (space.sensible(), space.naive)
        bases = tuple(base for base in together if space.check(base) is None)
        slots = open_slots(space, (self.base, *bases), role, () if code else points)
        return RoleView(self.request, role, self.base, slots, code)

    def _code(self, role: str) -> tuple[Slot, ...]:
        """Code slots that may be rewritten in this round: those with a text, where the role acts alone."""
        if self.request.kind not in ("refine", "repair"):
            return ()
        own = (slot for slot in self.request.space.code_slots if slot.owner == role)
        return tuple(slot for slot in own if str(self.base.get(slot.name, slot.default)).strip())

    def merged(self, own: Mapping[str, Said], known: Collection[Key]) -> tuple[Values, str | None]:
        """All answers on the base, and what is wrong with that, in a sentence."""
        values = dict(self.base)
        for role in self.roles:
            values |= own[role].values if role in own else {}
        invalid = self.request.space.check(values)
        if invalid is not None:
            return values, f"Together with all other slots this cannot run: {invalid.message}."
        if key_of(self.request.space, values) in known:
            return values, "With the other slots as they are this was tried already."
        return values, None

    def reconciled(self, own: Mapping[str, Said], known: Collection[Key]) -> tuple[Values, str | None]:
        """As many of the answers as go together, role by role and slot by slot."""
        space, values = self.request.space, dict(self.base)
        for role in self.roles:
            wishes = own[role].values if role in own else {}
            if space.check(values | wishes) is None:
                values |= wishes
                continue
            for name, value in wishes.items():
                if space.check(values | {name: value}) is None:
                    values[name] = value
        fresh = space.check(values) is None and key_of(space, values) not in known
        return values, None if fresh else "nothing new"

    def proposal(self, values: Values, own: Mapping[str, Said]) -> Proposal:
        """The proposal, each role's edits with its reason."""
        made = proposal(self.request.space, values, self.trial, self.request.kind)
        edits = {
            role: tuple(replace(edit, why=own[role].why if role in own else edit.why) for edit in edits)
            for role, edits in made.edits.items()
        }
        replies = {role: kept(*said.answers) for role, said in own.items() if said.answers}
        return replace(made, edits=edits, replies=replies)


def _naive_first(request: Request) -> list[Proposal]:
    """A search begins with the kernel that nobody tuned, where there is room for more than it."""
    space = request.space
    if request.history or request.count < 2 or space.check(space.naive) is not None:
        return []
    return [replace(proposal(space, space.naive, None, "naive"), by="naive")]


def _acting(request: Request) -> list[str]:
    """The roles that are asked in a round, in the order of the space's groups."""
    everybody = list(request.space.groups)
    if request.kind == "repair" and request.patient is not None:
        return [owner_at_fault(request)]
    if request.role is not None:
        return [request.role]
    return everybody


def owner_at_fault(request: Request) -> str:
    """Who mends a failed candidate: the owner of the slot that the failure names, or of the one that it edited last,
    else the first that can relieve what ran short."""
    space, patient = request.space, request.history[request.patient or 0]
    slot = request.complaint.slot if request.complaint else (patient.failure.slot if patient.failure else None)
    owners = {name: role for role, names in space.groups.items() for name in names}
    owners |= {one.name: one.owner for one in space.code_slots}
    if slot in owners:
        return owners[slot]
    rewritten = [one for one in space.code_slots if patient.values.get(one.name, one.default) != one.default]
    if rewritten and not patient.spills:
        return patient.role if patient.role in {one.owner for one in rewritten} else rewritten[0].owner
    remedies = (remedy.role for remedy in REMEDIES[cause_of(patient)])
    return next((role for role in remedies if role in space.groups), next(iter(space.groups)))
