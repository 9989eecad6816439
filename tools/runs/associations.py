"""Which slot values go with which failure: settings that failing candidates have more often than passing ones."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from warpsmith.kernels.records import Outcome, SlotValue
from warpsmith.tools.runs.ledger import FailureEntry, entries

SIGNIFICANT = 0.05
_MOST = 5
"""Settings told for a signature at most."""
_LONG = 40

Setting = tuple[tuple[str, str], ...]
"""One or two slots with their values as text."""


@dataclass(frozen=True, slots=True)
class Association:
    """A setting that is over-represented among the candidates that failed in one way."""

    setting: Setting
    failing_with: int
    failing: int
    passing_with: int
    passing: int
    p: float
    """One-sided Fisher's exact test among the failures not yet covered, not corrected for how many were tried."""

    @property
    def lift(self) -> float:
        """Share of failures among candidates with the setting, over that among all."""
        rate = self.failing_with / (self.failing_with + self.passing_with)
        return rate / (self.failing / (self.failing + self.passing))


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """All failures of one signature in a run."""

    signature: str
    stage: str
    kind: str | None
    slot: str | None
    text: str
    candidates: tuple[str, ...]
    compared: int
    """Passing candidates of the same families that the settings were held against."""
    tried: int
    """Settings that were held against them."""
    associations: tuple[Association, ...]


def failure_groups(outcomes: Sequence[Outcome]) -> list[FailureGroup]:
    """A run's failures by signature, the most frequent first. `outcomes`: all lines of results.jsonl."""
    by_signature: dict[str, dict[str, FailureEntry]] = defaultdict(dict)
    for entry in entries(outcomes):
        by_signature[entry.signature].setdefault(entry.candidate, entry)
    latest = {outcome.candidate: outcome for outcome in outcomes}
    passing = [outcome for outcome in latest.values() if outcome.correct]
    groups = [_group(list(found.values()), passing) for found in by_signature.values()]
    return sorted(groups, key=lambda group: (-len(group.candidates), group.signature))


def _group(failing: Sequence[FailureEntry], passing: Iterable[Outcome]) -> FailureGroup:
    first = failing[0]
    families = {entry.family for entry in failing}
    names = {entry.candidate for entry in failing}
    alike = [one for one in passing if one.family in families and one.candidate not in names]
    failing_slots = [_texts(entry.slots) for entry in failing]
    passing_slots = [_texts(outcome.slots) for outcome in alike]
    tried, found = associations(failing_slots, passing_slots)
    return FailureGroup(
        signature=first.signature, stage=first.stage, kind=first.kind, slot=first.slot, text=first.text,
        candidates=tuple(sorted(names)), compared=len(alike), tried=tried, associations=found,
    )  # fmt: skip


def associations(
    failing: Sequence[Mapping[str, str]], passing: Sequence[Mapping[str, str]]
) -> tuple[int, tuple[Association, ...]]:
    """How many settings were tried, and the few that cover the failures: the clearest first, with those just as clear;
    then the clearest for the failures that it does not cover, and so on. Nothing is told without both sides."""
    if not failing or not passing:
        return 0, ()
    varied = _varied([*failing, *passing])
    with_it = [set(_settings(one, varied)) for one in failing]
    against = Counter(setting for one in passing for setting in _settings(one, varied))
    totals = Counter(setting for one in with_it for setting in one)
    left, found = with_it, list[Association]()
    while left and len(found) < _MOST:
        clearest = _clearest(Counter(setting for one in left for setting in one), against, len(left), len(passing))
        if not clearest:
            break
        for setting, p in clearest:
            found.append(Association(setting, totals[setting], len(failing), against[setting], len(passing), p))
        left = [one for one in left if not any(setting in one for setting, _ in clearest)]
    return len(totals), tuple(found[:_MOST])


def _clearest(
    counts: Mapping[Setting, int], against: Mapping[Setting, int], failing: int, passing: int
) -> list[tuple[Setting, float]]:
    """The settings with the least p, by length and name; a pair counts only where it says more than its halves."""
    p = _tails({setting: (count, against[setting]) for setting, count in counts.items()}, failing, passing)
    kept = [setting for setting in p if p[setting] <= SIGNIFICANT and _says_more(setting, p)]
    least = min((p[setting] for setting in kept), default=0.0)
    alike = sorted((one for one in kept if p[one] <= least * (1 + 1e-9)), key=lambda one: (len(one), one))
    return [(setting, p[setting]) for setting in alike]


def _says_more(setting: Setting, p: Mapping[Setting, float]) -> bool:
    return len(setting) == 1 or all(p[setting] < p[(half,)] for half in setting)


def _tails(counts: Mapping[Setting, tuple[int, int]], failing: int, passing: int) -> dict[Setting, float]:
    """One-sided p values of all settings; many share their counts."""
    tails: dict[tuple[int, int], float] = {}
    for fails, passes in counts.values():
        if (fails, passes) not in tails:
            tails[fails, passes] = fisher_tail(fails, failing, passes, passing)
    return {setting: tails[fails, passes] for setting, (fails, passes) in counts.items()}


def fisher_tail(failing_with: int, failing: int, passing_with: int, passing: int) -> float:
    """Fisher's exact test, one-sided: the chance that at least as many failing ones have the setting if failing and
    having it were unrelated. In whole numbers, for scipy.stats takes longer to import than a report to write."""
    having, total = failing_with + passing_with, failing + passing
    ways = sum(comb(failing, k) * comb(passing, having - k) for k in range(failing_with, min(failing, having) + 1))
    return ways / comb(total, having)


def _varied(slots: Iterable[Mapping[str, str]]) -> set[str]:
    """Slots that have more than one value: the others tell nothing."""
    values: dict[str, set[str]] = defaultdict(set)
    for one in slots:
        for name, value in one.items():
            values[name].add(value)
    return {name for name, found in values.items() if len(found) > 1}


def _settings(slots: Mapping[str, str], varied: set[str]) -> Iterable[Setting]:
    single = sorted((name, value) for name, value in slots.items() if name in varied)
    yield from ((one,) for one in single)
    yield from itertools.combinations(single, 2)


def _texts(slots: Mapping[str, SlotValue]) -> dict[str, str]:
    return {name: value_text(value) for name, value in slots.items()}


def value_text(value: SlotValue) -> str:
    """A slot value in a few characters; the text of a code slot by its hash."""
    text = str(value)
    if len(text) <= _LONG and "\n" not in text:
        return text or "(empty)"
    return f"text {hashlib.sha256(text.encode()).hexdigest()[:6]}"
