"""Why a candidate is slower, faster or failed: facts from recorded outcomes, computed here and by nobody else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from warpsmith.agents.policy import Trial, trial_of
from warpsmith.app.chat import show
from warpsmith.app.wording import duration
from warpsmith.graph.interactive import Standing
from warpsmith.kernels.records import Outcome
from warpsmith.tools.profiling.counters import METRICS, Metric, worst

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session

TELLING = 0.02
"""Relative difference of a counter that is worth a line."""
SHOWN = 8
"""Counters that are shown, the most different first."""


def why_lines(session: Session, now: Standing, candidate: str | None) -> list[str]:
    """What is recorded of a candidate against what it is compared with. Without one: the latest that is correct and
    slower than the best, else the best itself."""
    incumbent = now.values.get("incumbent")
    chosen = candidate or _slower(session, now) or incumbent
    if chosen is None:
        return ["nothing correct was evaluated so far, so there is nothing to compare"]
    outcome = session.outcome(chosen)
    if outcome is None:
        return [f"{chosen} was proposed and not evaluated: nothing is recorded of it"]
    stored = session.store.get_candidate(chosen)
    other = stored.parent if chosen == incumbent or incumbent is None else incumbent
    lines = [f"{chosen} ({outcome.family}): {outcome.status}, {show.cost_text(outcome)}"]
    if outcome.failure is not None:
        lines += _failure(outcome)
    against = session.outcome(other) if other is not None and other != chosen else None
    if against is None:
        return [*lines, "  there is no other correct candidate to compare it with"]
    name = "the best" if other == incumbent else "what it was derived from"
    lines.append(f"against {against.candidate}, {name}: {show.cost_text(against)}")
    lines.append(f"  slots: {show.changed_slots(session, stored, against.candidate)}")
    if outcome.correct and against.correct:
        lines.append(f"  time: {_compared(outcome, against)}")
    lines += [f"  {text}" for text in _resources(outcome, against)]
    lines += [f"  {text}" for text in _counters(outcome, against)]
    return lines


def _slower(session: Session, now: Standing) -> str | None:
    """The latest correct candidate that costs more than the best."""
    best = now.values.get("incumbent")
    for ref in reversed(now.values.get("trials") or []):
        outcome = session.outcome(ref["candidate"])
        if outcome is not None and outcome.correct and ref["candidate"] != best:
            return ref["candidate"]
    return None


def _failure(outcome: Outcome) -> list[str]:
    failure = outcome.failure
    assert failure is not None
    where = f" in slot {failure.slot}" if failure.slot else ""
    kind = f" ({failure.kind})" if failure.kind else ""
    return [f"  failed at {failure.stage}{where}{kind}: {failure.message}"]


def _compared(outcome: Outcome, against: Outcome) -> str:
    """The ratio of the times with its interval where both were measured."""
    ours, theirs = outcome.cost_us, against.cost_us
    if ours is None or theirs is None or theirs == 0:
        return "one of the two has none"
    ratio = ours / theirs
    if (outcome.time_us is None) != (against.time_us is None):
        return "one was measured and the other only estimated: they are not comparable"
    if outcome.time_us is None:
        return f"{ratio:.2f} times by the cost model's estimates ({duration(ours)}, {duration(theirs)}); not measured"
    margin = math.hypot(_trial(outcome).margin, _trial(against).margin)
    low, high = ratio * (1 - margin), ratio * (1 + margin)
    verdict = "not distinguishable" if low <= 1.0 <= high else ("slower" if ratio > 1 else "faster")
    return f"{ratio:.3f} times, measured (95 % interval {low:.3f} to {high:.3f}, not paired): {verdict}"


def _trial(outcome: Outcome) -> Trial:
    return trial_of(outcome, {}, "joint", role=None, base=None, step=0)


def _resources(outcome: Outcome, against: Outcome) -> list[str]:
    rows = (
        ("registers a thread", outcome.registers, against.registers),
        ("bytes spilled", outcome.spills, against.spills),
        ("bytes of shared memory a block", outcome.shared_bytes, against.shared_bytes),
    )
    return [
        f"{name}: {ours:,} against {theirs:,}"
        for name, ours, theirs in rows
        if ours is not None and theirs is not None and ours != theirs
    ]


def _counters(outcome: Outcome, against: Outcome) -> list[str]:
    if outcome.counters is None or against.counters is None:
        return ["no counters were taken of both"]
    if outcome.counters.source != against.counters.source:
        return [
            f"counters of one are {outcome.counters.source}, of the other {against.counters.source}: not comparable"
        ]
    found: list[tuple[float, str]] = []
    for metric in METRICS:
        ours, theirs = worst(outcome.counters, metric.name), worst(against.counters, metric.name)
        if ours is None or theirs is None:
            continue
        difference = abs(ours - theirs) / max(abs(ours), abs(theirs), 1e-12)
        if difference >= TELLING:
            found.append((difference, _counter(metric, ours, theirs)))
    found.sort(key=lambda row: -row[0])
    lines = [f"{outcome.counters.source}: {text}" for _, text in found[:SHOWN]]
    return lines or [f"{outcome.counters.source} counters do not differ by {TELLING:.0%}"]


def _counter(metric: Metric, ours: float, theirs: float) -> str:
    unit = f" {metric.unit}" if metric.unit else ""
    worse = ""
    if metric.better is not None:
        worse = ", worse" if (ours < theirs) == (metric.better == "more") else ", better"
    return f"{metric.meaning} ({metric.name}): {ours:,.4g}{unit} against {theirs:,.4g}{unit}{worse}"
