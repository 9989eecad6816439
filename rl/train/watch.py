"""The watch for collapse: figures that are beyond their limits for too long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.rl.train.settings import WatchSettings

_ERRORS = "infrastructure_errors"


class Watch:
    """Counts updates in a row with a figure beyond its limit."""

    def __init__(self, settings: WatchSettings, before: Mapping[str, Any] | None = None) -> None:
        """`before`: the state of a training that is gone on with."""
        self.settings = settings
        state = before or {}
        self._counts: dict[str, int] = dict(state.get("counts", {}))
        self._errors: list[float] = list(state.get("errors", ()))
        """Shares of replies that were not judged, of the last updates."""

    @property
    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"counts": dict(self._counts), "errors": list(self._errors)}

    def look(self, figures: Mapping[str, float]) -> list[str]:
        """What is wrong for long enough, in words; told once when it begins."""
        limits, told = self.settings, list[str]()
        for name, limit, sign, words in (
            ("entropy", limits.least_entropy, -1, "the policy hardly varies any more"),
            ("groups_all_equal", limits.most_equal_groups, 1, "most groups teach nothing"),
            (_ERRORS, limits.most_infrastructure_errors, 1, "most replies are not judged"),
        ):
            found = figures.get(name, math.nan)
            if self._for_long(name, limit is not None and sign * (found - limit) > 0, limits.patience):
                told.append(f"{name} is {found:.3g} for {limits.patience} updates: {words}")
        return told + self._risen(figures.get(_ERRORS, math.nan))

    def _for_long(self, name: str, wrong: bool, patience: int) -> bool:
        """Whether this is the update that makes it long enough."""
        self._counts[name] = self._counts.get(name, 0) + 1 if wrong else 0
        return self._counts[name] == patience

    def _risen(self, errors: float) -> list[str]:
        """Whether errors of the infrastructure have become more, though they may be few."""
        patience, limit = self.settings.patience, self.settings.most_infrastructure_rise
        if not math.isfinite(errors) or limit is None:
            return []
        self._errors = [*self._errors, errors][-2 * patience :]
        before, now = _mean(self._errors[:patience]), _mean(self._errors[patience:])
        wrong = len(self._errors) == 2 * patience and now - before > limit
        if not self._for_long("infrastructure_rise", wrong, 1):
            return []
        return [
            f"{_ERRORS} rose from {before:.2g} to {now:.2g} within {2 * patience} updates: the judge is breaking down"
        ]


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures) if figures else 0.0
