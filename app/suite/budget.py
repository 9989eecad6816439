"""What is left of a suite's budgets, and how much of it the next problem may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MIN_COST = 1e-6
"""USD; less than this buys no request."""
_ROUNDING = 1e-9


@dataclass(slots=True)
class Purse:
    """One budget over many problems: what is spent, and what problems under way have set aside."""

    limit: float | None
    """None: no limit."""
    spent: float = 0.0
    reserved: dict[str, float] = field(default_factory=dict)
    """By the key of the problem under way."""

    @property
    def left(self) -> float:
        """What nobody has spent or set aside; infinite without a limit."""
        if self.limit is None:
            return float("inf")
        return self.limit - self.spent - sum(self.reserved.values())

    def reserve(self, key: str, wanted: float | None, waiting: int) -> float | None:
        """What the problem may use: all of what is `wanted`; without a wish a fair share of the rest, with `waiting`
        problems to come. None where that is not left. Infinite: there is no limit."""
        share = self.left / max(1, waiting) if wanted is None else wanted
        if share > self.left + _ROUNDING or (wanted is None and share < MIN_COST):
            return None
        if share != float("inf"):
            self.reserved[key] = share
        return share

    def settle(self, key: str, spent: float) -> None:
        """The problem ended, having used so much; what it did not use goes back."""
        self.reserved.pop(key, None)
        self.spent += spent


@dataclass(frozen=True, slots=True)
class Grant:
    """What one problem may use from now on."""

    evaluations: int
    cost_usd: float | None
    """None: no limit."""


@dataclass(slots=True)
class Purses:
    """The budgets of a suite that go down as problems are searched."""

    evaluations: Purse = field(default_factory=lambda: Purse(None))
    cost: Purse = field(default_factory=lambda: Purse(None))

    @property
    def busy(self) -> bool:
        """Whether a problem under way may still give something back."""
        return bool(self.evaluations.reserved or self.cost.reserved)

    def grant(
        self, key: str, evaluations: int, cost_usd: float | None, waiting: int
    ) -> Grant | Literal["evaluations", "cost"]:
        """Sets aside what a problem wants, or says which budget does not hold it: every problem gets its whole budget,
        or is not begun."""
        if self.evaluations.reserve(key, evaluations, waiting) is None:
            return "evaluations"
        cost = self.cost.reserve(key, cost_usd, waiting)
        if cost is None:
            self.evaluations.settle(key, 0)
            return "cost"
        return Grant(evaluations, None if cost == float("inf") else cost)

    def settle(self, key: str, evaluations: int, cost_usd: float) -> None:
        """The problem is no longer under way, and used so much."""
        self.evaluations.settle(key, max(0, evaluations))
        self.cost.settle(key, max(0.0, cost_usd))
