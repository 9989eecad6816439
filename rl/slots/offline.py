"""Default weights from timings that were recorded: which of two candidates is faster is learnt as a preference, beyond
what the cost model's prior says already.

The policy's own log-probability is the score; the loss of a pair is that of Bradley and Terry, as in direct preference
optimisation with the prior in the place of a reference (arXiv 2305.18290). It needs no behaviour policy: timings may
come from any search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize
from scipy.stats import spearmanr

from warpsmith.agents.slots.layout import Floats, Ints, Layout
from warpsmith.agents.slots.specialist import SlotColumns, Specialist, columns_of, kind_of, warm
from warpsmith.agents.slots.weights import Weights, log_chosen, logits, probabilities, zeros
from warpsmith.kernels.records import SlotValue
from warpsmith.rl.slots.records import Recorded

NEAR = 1.05
"""A candidate counts as found within this factor of the best measured one."""


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """How strongly weights are held to zero, and what counts as a difference."""

    bias: float = 30.0
    pairs: float = 100.0
    """Precisions of the two priors around zero, where each space weighs as much as it has candidates."""
    margin: float = 0.03
    """Least relative difference of two times that is learnt from."""
    iterations: int = 200


def defaults(
    groups: Sequence[Recorded], settings: OfflineSettings, made: dict[str, str | int | float]
) -> list[Specialist]:
    """A specialist for each family and architecture."""
    return [fitted(own, settings, made) for own in by_family(groups)]


def by_family(groups: Sequence[Recorded]) -> list[list[Recorded]]:
    """Spaces that share a family and an architecture. One space alone is left out: nothing tells what holds beyond
    it."""
    found: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
    for one in groups:
        found[kind_of(one.layout.grid.space)].append(one)
    return [own for own in found.values() if len(own) > 1]


def fitted(groups: Sequence[Recorded], settings: OfflineSettings, made: dict[str, str | int | float]) -> Specialist:
    """The specialist of one family, from spaces whose slots may have different values."""
    operators, arch = kind_of(groups[0].layout.grid.space)
    slots = _union([one.layout for one in groups])
    width = sum(len(slot.values) for slot in slots)
    bare = Specialist(
        operator_class=operators, arch=arch, view="all", slots=slots, bias=(0.0,) * width,
        pairs=((0.0,) * width,) * width,
        made=made | {"problems": len(groups), "candidates": sum(len(one.choices) for one in groups)},
    )  # fmt: skip
    sides = [_Side(one, columns_of(one.layout, bare), settings.margin) for one in groups]

    def objective(flat: Floats) -> tuple[float, Floats]:
        bias, pairs = flat[:width], flat[width:].reshape(width, width)
        slope_bias, slope_pairs = settings.bias * bias, settings.pairs * pairs
        loss = 0.5 * float(bias @ slope_bias + (pairs * slope_pairs).sum())
        for side in sides:
            loss += side.add(bias, pairs, slope_bias, slope_pairs)
        return loss, np.concatenate([slope_bias, slope_pairs.ravel()])

    found = minimize(
        objective, np.zeros(width + width * width), jac=True, method="L-BFGS-B",
        options={"maxiter": settings.iterations},
    ).x  # fmt: skip
    pairs = np.round(found[width:].reshape(width, width), 4)
    return bare.model_copy(
        update={"bias": tuple(np.round(found[:width], 4).tolist()), "pairs": tuple(map(tuple, pairs.tolist()))}
    )


@dataclass(frozen=True)
class _Side:
    """One space in the fit."""

    group: Recorded
    columns: Ints
    """(width,): of the space's values in the specialist."""
    margin: float

    @cached_property
    def chosen(self) -> Floats:
        return self.group.layout.one_hot(self.group.choices)

    @cached_property
    def base(self) -> Floats:
        return self.group.layout.base(self.group.choices)

    @cached_property
    def better(self) -> Floats:
        """(n, n): weight of the row's being faster than the column; they sum up to n."""
        logs = self.group.log_us
        found: Floats = (logs[:, None] < logs[None, :] - self.margin).astype(np.float64)
        found *= len(logs) / max(float(found.sum()), 1.0)
        return found

    def add(self, bias: Floats, pairs: Floats, slope_bias: Floats, slope_pairs: Floats) -> float:
        """The loss; its slope is added to the arrays."""
        layout, own = self.group.layout, self.columns
        weights = Weights(bias[own], pairs[np.ix_(own, own)] * layout.seen)
        probability = probabilities(
            layout, logits(layout, weights, self.chosen), self.base, np.zeros(len(layout.sizes))
        )
        score = log_chosen(layout, probability, self.group.choices).sum(axis=1)
        ahead = score[:, None] - score[None, :]
        pull = self.better / (1.0 + np.exp(ahead))
        by_score = pull.sum(axis=0) - pull.sum(axis=1)
        by_logit = by_score[:, None] * (self.chosen - probability)
        np.add.at(slope_bias, own, by_logit.sum(axis=0))
        np.add.at(slope_pairs, np.ix_(own, own), (self.chosen.T @ by_logit) * layout.seen)
        return float((self.better * np.logaddexp(0.0, -ahead)).sum())


def _union(layouts: Sequence[Layout]) -> tuple[SlotColumns, ...]:
    """All slots in the order of decisions, each with all values that it has anywhere."""
    roles: dict[str, str] = {}
    values: dict[str, dict[SlotValue, None]] = defaultdict(dict)
    # The space with the most slots says the order; what it lacks comes last.
    for layout in sorted(layouts, key=lambda one: -len(one.order)):
        for column, role in zip(layout.order, layout.roles, strict=True):
            slot = layout.grid.slots[column]
            roles.setdefault(slot.name, role)
            values[slot.name] |= dict.fromkeys(slot.values)
    return tuple(
        SlotColumns(name=name, role=role, values=tuple(sorted(values[name], key=lambda one: (str(type(one)), one))))
        for name, role in roles.items()
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How well the measured candidates of a problem are ordered by weights that were made without it, and by the prior
    alone."""

    family: str
    problem: str
    candidates: int
    spearman: tuple[float, float]
    """Rank correlation with the times: prior, learnt."""
    first: tuple[float, float]
    """Time of the likeliest candidate over the best one's."""
    until: tuple[int, int]
    """Candidates by falling likelihood until one is within 5 % of the best."""


def left_out(groups: Sequence[Recorded], settings: OfflineSettings) -> list[LeftOut]:
    """Each problem in turn, all its spaces of a family left out; families of a single problem say nothing."""
    found = []
    for own in by_family(groups):
        for held in own:
            others = [one for one in own if one.problem != held.problem]
            if others:
                start = fitted(others, settings, {})
                found.append(_compared(held, start))
    return found


def _compared(held: Recorded, start: Specialist) -> LeftOut:
    layout = held.layout
    scores = [likelihoods(held, zeros(layout)), likelihoods(held, warm(layout, start))]
    times = np.exp(held.log_us - held.log_us.min())
    orders = [np.argsort(-one, kind="stable") for one in scores]
    known = [spearmanr(one, -held.log_us).statistic for one in scores]
    return LeftOut(
        family=kind_of(layout.grid.space)[0], problem=held.problem, candidates=len(times),
        spearman=(float(known[0]), float(known[1])),
        first=(float(times[orders[0][0]]), float(times[orders[1][0]])),
        until=(_until(times[orders[0]]), _until(times[orders[1]])),
    )  # fmt: skip


def _until(times: Floats) -> int:
    return int(np.argmax(times <= NEAR)) + 1


def likelihoods(held: Recorded, weights: Weights) -> Floats:
    """(n,): log-probabilities of the measured candidates under a policy without noise."""
    layout = held.layout
    raw = logits(layout, weights, layout.one_hot(held.choices))
    quiet = np.zeros(len(layout.sizes))
    probability = probabilities(layout, raw, layout.base(held.choices), quiet)
    found: Floats = log_chosen(layout, probability, held.choices).sum(axis=1)
    return found
