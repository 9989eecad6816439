"""What is left of a suite's budgets, and how much of it the next problem may take."""

from __future__ import annotations

from dataclasses import dataclass, field

MIN_COST = 1e-6
"""Less than this buys no request."""


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

    def reserve(self, key: str, wanted: float | None, waiting: int, least: float) -> float | None:
        """What the problem may use: `wanted`, where the rest holds as much; without a wish a fair share of it, with
        `waiting` problems to come. None: less than `least` is left. Infinite: there is no limit."""
        share = wanted if wanted is not None else self.left / max(1, waiting)
        share = min(share, self.left)
        if share < least:
            return None
        if share != float("inf"):
            self.reserved[key] = share
        return share

    def settle(self, key: str, spent: float) -> None:
        """The problem ended, having used so much; what it did not use goes back."""
        self.reserved.pop(key, None)
        self.spent += spent
