"""Which round comes next: repair, escape, refine (of which role) or joint. A pure function of the history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpsmith.agents.policy import Kind, Trial
from warpsmith.agents.ranks import TIE
from warpsmith.agents.space import SearchSpace

PLATEAU = 6
"""Evaluations without progress after which a round may disturb instead of refine."""
REPAIR_LIMIT = 4
"""Attempts to mend one candidate."""
WHOLE_REPAIRS = 3
"""Attempts to mend one candidate that was written as a whole."""
WRITTEN_AT_ONCE = 2
"""Whole candidates that are asked for in one round."""
WRITE_AFTER = 2 * PLATEAU
"""Evaluations without progress after which a whole candidate is asked for."""
IDLE_LIMIT = 3
"""Rounds in a row without a single new candidate after which nobody is asked any more."""
LEAST_GAIN = 0.01
"""Decayed mean log gain below which refining a role has stopped to pay: then all act together."""
DECAY = 0.7
"""Weight of a role's earlier gains against its latest in the bandit."""


@dataclass(frozen=True, slots=True)
class Round:
    """What to ask the policy next."""

    kind: Kind
    count: int
    role: str | None = None
    patient: int | None = None


def next_round(
    space: SearchSpace,
    history: Sequence[Trial],
    *,
    batch: int,
    left: int,
    lag: Mapping[str, float] | None = None,
) -> Round:
    """The next round given all trials so far; `left` evaluations remain; `lag` favours roles whose counters
    lag."""
    count = max(1, min(batch, left))
    if not history:
        return Round("start", count)
    patient = patient_of(history)
    if patient is not None:
        return Round("repair", min(count, 2), None, patient)
    rounds = _rounds(history)
    stale = since_progress(history)
    if stale >= PLATEAU and rounds[-1][0] != "escape" and stale // PLATEAU > _trailing_escapes(rounds, stale):
        roles = list(space.groups)
        disturbed = None if len(rounds) % 2 else roles[len(rounds) // 2 % len(roles)]
        return Round("escape", count, disturbed)
    if rounds[-1][0] in ("refine",) and len(space.groups) > 1:
        return Round("joint", count)
    role = _most_promising_role(space, history, lag or {})
    gain, refined = role_gains(history).get(role, (0.0, 0))
    return Round("refine", count, role) if not refined or gain >= LEAST_GAIN else Round("joint", count)


def writing_round(
    whole: Sequence[Trial],
    slotted: Sequence[Trial],
    *,
    only: bool,
    batch: int,
    left: int,
    handed: bool,
    idle: int,
) -> Round | None:
    """The next round if a whole candidate is to be written in it, else None.

    `whole` are the whole candidates so far, `slotted` those of families; `only`: no family covers the problem; `handed`
    says that the start was a whole candidate, or that the planner gave the region away; `idle` counts rounds in a row
    in which the writer gave nothing new.
    """
    if idle >= IDLE_LIMIT:
        return None
    patient = whole_patient(whole)
    if patient is not None:
        return Round("repair", 1, None, patient)
    fresh = Round("freeform", max(1, min(batch, left, WRITTEN_AT_ONCE)))
    written = len({t.step for t in whole if t.kind == "freeform"})
    if only or (handed and not written):
        return fresh
    everything = sorted((*whole, *slotted), key=lambda trial: trial.step)
    stale = since_progress(everything)
    since = {t.step for t in everything[len(everything) - stale :] if t.kind == "freeform"}
    return fresh if stale // WRITE_AFTER > len(since) else None


def whole_patient(whole: Sequence[Trial]) -> int | None:
    """Index of the whole candidate to mend next: the newest of a lineage that failed, while attempts are left.

    Lineages of the latest fresh round alone; once one of them is right the others are left.
    """
    fresh = [trial.step for trial in whole if trial.kind != "repair"]
    if not fresh:
        return None
    latest = [i for i, trial in enumerate(whole) if trial.step >= max(fresh)]
    if any(not whole[i].failed and whole[i].telling for i in latest):
        return None
    for first in (i for i in latest if whole[i].kind != "repair"):
        line = [first]
        for i in latest:
            if whole[i].kind == "repair" and whole[i].base == whole[line[-1]].candidate and i not in line:
                line.append(i)
        if whole[line[-1]].failed and len(line) <= WHOLE_REPAIRS:
            return line[-1]
    return None


def since_progress(history: Sequence[Trial]) -> int:
    """Evaluations since the incumbent last became cheaper by more than a tie."""
    best, since = math.inf, 0
    for trial in history:
        since += 1
        if trial.cost is not None and trial.cost < best * (1 - max(TIE, trial.margin) * 0.5):
            best, since = trial.cost, 0
    return since


def patient_of(history: Sequence[Trial]) -> int | None:
    """Index of the trial to mend next, or None.

    An incumbent that spills (until one of its mends is healthy) and a search in which nothing runs get up to
    `REPAIR_LIMIT` attempts; another failure of the last round gets one, as long as repairs stay a small part of the
    search.
    """
    mends: dict[str | None, list[Trial]] = {trial.candidate: [] for trial in history}
    for trial in history:
        if trial.kind == "repair":
            mends.setdefault(trial.base, []).append(trial)
    costed = [i for i, t in enumerate(history) if t.cost is not None]
    best = min(costed, key=lambda i: history[i].cost or 0.0, default=None)
    if best is not None and history[best].spills:
        tried = mends[history[best].candidate]
        if len(tried) < REPAIR_LIMIT and all(t.ailing for t in tried):
            return best
    ailing = [i for i, t in enumerate(history) if t.ailing and t.kind != "repair"]
    if best is None:
        return next((i for i in reversed(ailing) if len(mends[history[i].candidate]) < REPAIR_LIMIT), None)
    repairs = sum(t.kind == "repair" for t in history)
    fresh = [i for i in ailing if history[i].step == history[-1].step and history[i].cost is None]
    if fresh and repairs < 2 + len(history) // 8:
        return next((i for i in fresh if not mends[history[i].candidate]), None)
    return None


def role_gains(history: Sequence[Trial]) -> dict[str, tuple[float, int]]:
    """Role -> (decayed mean log gain of its refine rounds over the incumbent of the time, rounds)."""
    gains: dict[str, tuple[float, int]] = {}
    best = math.inf
    for kind, role, members in _rounds(history):
        cheapest = min((t.cost for t in members if t.cost is not None), default=math.inf)
        gain = math.log(best / cheapest) if cheapest < best < math.inf else 0.0
        if kind == "refine" and role is not None:
            mean, n = gains.get(role, (0.0, 0))
            gains[role] = (gain if n == 0 else DECAY * mean + (1 - DECAY) * gain, n + 1)
        best = min(best, cheapest)
    return gains


def _most_promising_role(space: SearchSpace, history: Sequence[Trial], lag: Mapping[str, float]) -> str:
    """The role with the highest upper bound on its gain; unvisited roles first, those that lag before
    others."""
    gains = role_gains(history)
    total = sum(n for _, n in gains.values()) + 1

    def bound(role: str) -> float:
        mean, n = gains.get(role, (0.0, 0))
        bonus = math.inf if n == 0 else 0.1 * math.sqrt(math.log(total + 1) / n)
        return mean + bonus + 0.1 * lag.get(role, 0.0)

    unvisited = [role for role in space.groups if role not in gains]
    if unvisited:
        return max(unvisited, key=lambda role: lag.get(role, 0.0))
    return max(space.groups, key=bound)


def _rounds(history: Sequence[Trial]) -> list[tuple[Kind, str | None, list[Trial]]]:
    found: list[tuple[Kind, str | None, list[Trial]]] = []
    last: int | None = None
    for trial in history:
        if trial.step != last:
            found.append((trial.kind, trial.role, []))
            last = trial.step
        found[-1][2].append(trial)
    return found


def _trailing_escapes(rounds: Sequence[tuple[Kind, str | None, list[Trial]]], stale: int) -> int:
    """Escape rounds since the last progress."""
    escapes, seen = 0, 0
    for kind, _, members in reversed(rounds):
        seen += len(members)
        if seen > stale:
            break
        escapes += kind == "escape"
    return escapes
