"""`slots:PATH`: role policies that were trained on other searches and go on learning in this one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from warpsmith.agents.belief import one_thread
from warpsmith.agents.policy import Proposal, Request, Trial, proposal
from warpsmith.agents.pool import candidates
from warpsmith.agents.repair import mend
from warpsmith.agents.slots.layout import Bools, Floats, Ints, Layout, View
from warpsmith.agents.slots.learner import Learner, Worth, ranked
from warpsmith.agents.slots.sampling import draw
from warpsmith.agents.slots.settings import LearnSettings
from warpsmith.agents.slots.specialist import Specialist, kind_of, nearest, read_specialists, warm
from warpsmith.agents.slots.weights import log_chosen, logits, probabilities
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.kernels.slots import Values

PREFIX = "slots:"
DEFAULT = "default"
"""Behind the prefix: the specialists that come with Warpsmith."""
SHIPPED = Path(__file__).parent / "shipped"
DRAWS = 64
"""Rows drawn at once."""
TRIES = 6
"""Times that rows are drawn, with more and more noise, before any fresh point will do."""


def _grpo() -> Worth:
    return ranked


@dataclass(slots=True)
class _Search:
    """A search of one space: what was told so far, and the learner that it led to."""

    space: SearchSpace
    learner: Learner
    told: tuple[Trial, ...] = ()


@dataclass(slots=True)
class _Under:
    """The searches under way, by the space's name: a run may look at several families in turn."""

    searches: dict[str, _Search] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class SlotPolicy:
    """Stateless to whoever asks: the learner is made from the history, and kept only to save time."""

    specialists: tuple[Specialist, ...] = ()
    """The nearest to a space is where its search begins; without any it begins from the prior."""
    name: str = "slots"
    view: View = "all"
    """Where no specialist says it."""
    settings: LearnSettings | None = None
    """None: as the specialist says, else the defaults."""
    worth: Callable[[], Worth] = _grpo
    """Makes the rule of advantages for a search."""
    own_class: bool = False
    """Whether only specialists of a space's own class of operators are asked."""
    _under: _Under = field(default_factory=_Under, repr=False, compare=False)

    def opening(self, space: SearchSpace) -> Values:
        """The likeliest of the specialist's draws; without a specialist the family's prior."""
        if self._nearest(space) is None:
            return space.sensible()
        learner = self._new(space)
        layout, quiet = learner.layout, np.zeros(len(learner.layout.sizes))
        found = _fresh(learner, quiet, set(), DRAWS, np.random.default_rng(0))
        if not found:
            return space.sensible()
        choices = layout.choices(found)
        raw = logits(layout, learner.weights, layout.one_hot(choices))
        likely = log_chosen(layout, probabilities(layout, raw, layout.base(choices), quiet), choices).sum(axis=1)
        return layout.grid.values(found[int(np.argmax(likely))])

    def propose(self, request: Request) -> list[Proposal]:
        """Repairs by rule; else draws of everybody, or of the acting role with the others as in the best."""
        base, points = request.incumbent, list[Point]()
        if request.kind == "repair" and request.patient is not None:
            base = request.history[request.patient]
            points = mend(request, base)
        if not points:
            with self._under.lock, one_thread():
                points = _points(self._learner(request.space, request.history), request)
        grid = Grid(request.space)
        why = f"slots, {request.kind} {request.role or ''}".strip()
        return [proposal(request.space, grid.values(point), base, why) for point in points]

    def learnt(self, space: SearchSpace, history: tuple[Trial, ...]) -> Learner:
        """The learner after these trials: what training keeps."""
        with self._under.lock, one_thread():
            return self._learner(space, history)

    def _learner(self, space: SearchSpace, history: tuple[Trial, ...]) -> Learner:
        kept = self._under.searches.get(space.name)
        if kept is None or kept.space != space or history[: len(kept.told)] != kept.told:
            kept = self._under.searches[space.name] = _Search(space, self._new(space))
        for _, round_ in groupby(history[len(kept.told) :], key=lambda trial: trial.step):
            kept.learner.tell(list(round_))
        kept.told = history
        return kept.learner

    def _new(self, space: SearchSpace) -> Learner:
        start = self._nearest(space)
        layout = Layout(Grid(space), self.view if start is None else start.view)
        learn = self.settings or (start.learn if start is not None else None) or LearnSettings()
        return Learner(layout, warm(layout, start), learn, self.worth())

    def _nearest(self, space: SearchSpace) -> Specialist | None:
        start = nearest(self.specialists, space)
        if start is None or (self.own_class and start.operator_class != kind_of(space)[0]):
            return None
        return start


def slot_policy(name: str) -> SlotPolicy:
    """From `slots:PATH`, or `slots:default`. UserError where PATH holds no specialist."""
    if name == PREFIX + DEFAULT:
        return SlotPolicy(read_specialists(SHIPPED), name, own_class=True)
    return SlotPolicy(read_specialists(Path(name.removeprefix(PREFIX))), name)


def _points(learner: Learner, request: Request) -> list[Point]:
    """New valid points for a round: as the policy draws them around the best so far, then anywhere, then any."""
    layout, rng, seen, best = learner.layout, request.rng(), request.seen, request.incumbent
    noise, drawn = learner.noise(request.kind, request.role), learner.decides(request.kind, request.role)
    found: list[Point] = []
    if best is not None and not drawn.all():
        held = (layout.choices([layout.grid.point(best.values)])[0], ~drawn)
        found = _fresh(learner, noise, seen, request.count, rng, held)
    if len(found) < request.count:
        found += _fresh(learner, noise, seen | set(found), request.count - len(found), rng)
    if len(found) < request.count:
        left = [point for point in candidates(request, rng) if point not in seen and point not in found]
        wanted = min(len(left), request.count - len(found))
        found += [left[i] for i in rng.choice(len(left), wanted, replace=False)] if wanted else []
    return found


def _fresh(
    learner: Learner,
    noise: Floats,
    seen: set[Point],
    count: int,
    rng: np.random.Generator,
    held: tuple[Ints, Bools] | None = None,
) -> list[Point]:
    """At most `count` valid points that were not tried; each further attempt has more noise."""
    layout, found = learner.layout, dict[Point, None]()
    for attempt in range(TRIES):
        share = noise + (1.0 - noise) * attempt / TRIES
        for row in draw(layout, learner.weights, DRAWS, share, rng, held):
            point = layout.point(row)
            if len(found) < count and point not in found and point not in seen and layout.grid.valid(point):
                found[point] = None
        if len(found) >= count:
            break
    return list(found)
