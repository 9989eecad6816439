"""What a run has cost so far, from its records: replies of models and seconds of the judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpsmith.app.chat import show
from warpsmith.kernels.records import Event

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session


@dataclass
class Spent:
    """Sums over a run. Replies that failed count as well."""

    replies: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    """Replies whose price is not known."""

    def add(self, event: Event) -> None:
        """Counts a `reply` event in."""
        if event.kind != "reply":
            return
        self.replies += 1
        self.tokens += int(event.data.get("tokens") or 0)
        if event.data.get("cost") is None:
            self.unpriced += 1
        else:
            self.usd += float(event.data["cost"])


def device_seconds(session: Session) -> float:
    """Seconds that verdicts and timing took."""
    return sum((o.verify_s or 0.0) + (o.time_s or 0.0) for o in session.store.lines())


def cost_lines(session: Session) -> list[str]:
    """The account for a reader."""
    spent = session.spent
    where = "GPU" if session.bench.machine.target.kind == "gpu" else "emulator"
    compiled = sum(o.compile_s or 0.0 for o in session.store.lines())
    money = f"${spent.usd:.4f}" + (f" and {spent.unpriced} replies of unknown price" if spent.unpriced else "")
    return [
        f"models: {spent.replies} replies, {spent.tokens:,} tokens, {money}",
        f"judge: {device_seconds(session):.1f} s on the {where}, {compiled:.1f} s of compiling",
    ]


def footer(session: Session, incumbent: str | None) -> str:
    """The line below the prompt."""
    spent = session.spent
    where = "GPU" if session.bench.machine.target.kind == "gpu" else "emulator"
    outcome = session.outcome(incumbent) if incumbent else None
    best = show.cost_text(outcome) if outcome else "none yet"
    return (
        f" {session.mode} | ${spent.usd:.2f} | {spent.tokens:,} tokens | {where} {device_seconds(session):.0f} s | "
        f"best {best}"
    )
