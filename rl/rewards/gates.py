"""Gates: which outcome may be ranked, which counts as incorrect, and which says nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from warpsmith.kernels.records import Outcome
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.tools.profiling.counters import BY_NAME, worst

Standing = Literal["verified", "incorrect", "absent"]
"""`absent`: it leaves the statistics, earns 0 and teaches nothing."""
Basis = Literal["paired", "measured", "estimated"]
"""How a cost was had: against eager in the same rounds, as a time of its own, or from the cost model."""

_PROGRESS: Mapping[str, float] = {
    "rejected": 0.0, "suspicious": 0.0, "compile_error": 0.25, "launch_error": 0.5, "crashed": 0.5, "hang": 0.5,
    "not_measured": 0.5, "wrong": 0.75,
}  # fmt: skip
"""How far a candidate came that was not verified; cheating is no progress."""
_EAGER = "eager"
_NORMAL_95 = 1.959964
_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a normal sample's median over that of its mean."""
_P10_TO_P90 = 2.563103
"""Standard deviations between these quantiles of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost on the scale of natural logarithms, less is better, with half of its 95 % interval."""

    log: float
    half: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group, as rewards see it."""

    key: str
    """Names the kernel: members with one key are one kernel."""
    standing: Standing
    gate: str
    """Why it stands there: `verified`, a status, `coverage`, `unjudged`, `no_cost`."""
    costs: tuple[Cost, ...] = ()
    """At most one for each basis."""
    progress: float = 0.0
    """0 to 1: how far it came, where it is incorrect."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """Of the worst kernel, by the table's names."""
    coverage: float | None = None
    machine: str | None = None
    """Where it ran, as in `verified_on`."""

    def cost(self, basis: Basis | None) -> Cost | None:
        """Its cost on this basis."""
        return next((one for one in self.costs if one.basis == basis), None)


def member_of(outcome: Outcome, settings: RewardSettings, *, full: bool | None = None) -> Member:
    """How an outcome stands. `full`: False where it comes from a quick check after all; else its status says so.

    Only `infrastructure_error` leaves the statistics, and what nobody has judged to the end: a candidate that
    passed the quick check alone, unless that is enough.
    """
    coverage = covered(outcome)
    member = Member(
        key=outcome.binary or outcome.candidate, standing="absent", gate=outcome.status, coverage=coverage,
        machine=outcome.verified_on, counters=figures(outcome),
    )  # fmt: skip
    if outcome.status == "infrastructure_error":
        return member
    if not outcome.correct:
        return replace(member, standing="incorrect", progress=_PROGRESS[outcome.status])
    if coverage is not None and coverage < settings.coverage:
        return replace(member, standing="incorrect", gate="coverage")
    judged = outcome.status == "ok" and full is not False
    if not judged and not settings.screened:
        return replace(member, gate="unjudged")
    costs = costs_of(outcome)
    if not costs:
        return replace(member, gate="no_cost")
    return replace(member, standing="verified", gate="verified" if judged else "screened", costs=costs)


def members_of(outcomes: Sequence[Outcome], settings: RewardSettings) -> list[Member]:
    """`member_of` each."""
    return [member_of(outcome, settings) for outcome in outcomes]


def absolute(member: Member) -> dict[str, float]:
    """What is true of a member whatever group it is in, by name: `verified` (0 or 1), `progress` of one that is not,
    `coverage`, `log_speedup` over eager, `log_us`, `log_estimated_us`. What was not taken is left out. Ranks show no
    progress, these do."""
    found = {"verified": float(member.standing == "verified")}
    if member.standing == "incorrect":
        found["progress"] = member.progress
    if member.coverage is not None:
        found["coverage"] = member.coverage
    names = {"paired": ("log_speedup", -1.0), "measured": ("log_us", 1.0), "estimated": ("log_estimated_us", 1.0)}
    for cost in member.costs:
        name, sign = names[cost.basis]
        found[name] = sign * cost.log
    return found


def covered(outcome: Outcome) -> float | None:
    """Share of the device time that own kernels take; None where it is not known. A plan of own kernels alone has 1
    and one of library calls 0, whatever was measured."""
    if outcome.provenance == "own":
        return 1.0
    if outcome.own_share is not None:
        return outcome.own_share
    return 0.0 if outcome.provenance == "library" else None


def costs_of(outcome: Outcome) -> tuple[Cost, ...]:
    """What is known of its cost, the best basis first. A speed-up is a ratio of times taken in the same rounds, so that
    clocks that drift between two verdicts do not tell them apart."""
    found: list[Cost] = []
    paired = (outcome.speedup or {}).get(_EAGER)
    if paired is not None and paired.value > 0:
        low, high = max(paired.low, 1e-12), max(paired.high, 1e-12)
        half = max(math.log(high / paired.value), math.log(paired.value / low), 0.0)
        found.append(Cost(-math.log(paired.value), half, "paired"))
    time = outcome.time_us
    if time is not None and time.p50 > 0:
        error = _MEDIAN * (time.p90 - time.p10) / _P10_TO_P90 / math.sqrt(max(time.n, 1))
        found.append(Cost(math.log(time.p50), _NORMAL_95 * error / time.p50, "measured"))
    if outcome.estimated_us is not None and outcome.estimated_us > 0:
        found.append(Cost(math.log(outcome.estimated_us), 0.0, "estimated"))
    return tuple(found)


def figures(outcome: Outcome) -> dict[str, float]:
    """The counters of the worst kernel of a plan, by the table's names."""
    if outcome.counters is None:
        return {}
    named = {name: worst(outcome.counters, name) for name in BY_NAME}
    return {name: value for name, value in named.items() if value is not None and np.isfinite(value)}
