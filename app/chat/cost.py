"""What a run has cost so far, from its records: exchanges with models and seconds of the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpsmith.agents.llm.accounts import Account, Line
from warpsmith.agents.llm.replies import FILE, ReplyStore
from warpsmith.app.chat import show
from warpsmith.app.wording import count

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session


def spent(session: Session) -> Account:
    """All exchanges of the run, failed ones too, booked by role and model."""
    account = Account()
    if (session.store.folder / FILE).exists():
        account.restore(ReplyStore(session.store.folder).calls())
    return account


def device_seconds(session: Session) -> float:
    """Seconds that verdicts and timing took."""
    return sum((o.verify_s or 0.0) + (o.time_s or 0.0) for o in session.store.lines())


def cost_rows(session: Session) -> list[tuple[str, ...]]:
    """The account of the models by role; empty where none was asked."""
    account = spent(session)
    lines = account.lines()
    if not lines:
        return []
    head = ("role", "model", "calls", "failed", "tokens in", "cached", "out", "cost", "seconds")
    return [head, *(_row(line) for line in [*lines, account.total()])]


def _row(line: Line) -> tuple[str, ...]:
    about = "about " if line.estimated else ""
    return (
        line.role, line.model, str(line.calls), str(line.failed + line.invalid), f"{about}{line.prompt_tokens:,}",
        f"{line.cached_tokens:,}", f"{about}{line.completion_tokens:,}", _money(line), f"{line.latency_s:.1f}",
    )  # fmt: skip


def _money(line: Line) -> str:
    return "price not known" if line.cost_usd is None else f"${line.cost_usd:.4f}"


def judge_line(session: Session) -> str:
    """What the judge took."""
    compiled = sum(o.compile_s or 0.0 for o in session.store.lines())
    outcomes = count(len(session.store.outcomes()), "candidate")
    return f"judge: {outcomes}, {device_seconds(session):.1f} s on the {_where(session)}, {compiled:.1f} s of compiling"


def _where(session: Session) -> str:
    return "GPU" if session.bench.machine.target.kind == "gpu" else "emulator"


def footer(session: Session) -> str:
    """The line below the prompt, as things stand now."""
    total = spent(session).total()
    outcome = session.outcome(session.shown_best) if session.shown_best else None
    best = show.cost_text(outcome) if outcome else "none yet"
    tokens = total.prompt_tokens + total.completion_tokens
    return f"{_money(total)} | {tokens:,} tokens | {_where(session)} {device_seconds(session):.0f} s | best {best}"
