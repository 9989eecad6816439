"""Commands about how the search is run: /mode /model /budget /cost."""

from __future__ import annotations

from warpsmith.agents.registry import POLICIES
from warpsmith.app.chat import show
from warpsmith.app.chat.cost import cost_rows, judge_line
from warpsmith.app.chat.registry import command
from warpsmith.app.chat.session import MODES, Session
from warpsmith.app.wording import count
from warpsmith.kernels.errors import UserError


@command("mode", "[ask|auto|yolo]", words=lambda session: MODES)
async def mode(session: Session, argument: str) -> None:
    """Say or set what is asked of you; Shift-Tab goes to the next."""
    if argument:
        if argument not in MODES:
            raise UserError(f"no mode {argument[:40]!r}: {', '.join(MODES)}")
        session.mode = argument
    session.screen.line(f"mode {session.mode}: {show.MODE_WORDS[session.mode]}")
    await session.answer_by_mode()


@command("model", "[POLICY]", words=lambda session: list(POLICIES))
async def model(session: Session, argument: str) -> None:
    """Say or set who proposes: builtin, chat:MODEL@URL, ..."""
    if argument:
        session.take_policy(argument, session.caps)
        session.set_settings(policy=argument)
    session.screen.line(f"policy {session.search.context.policy.name}")


_CAPS = {"cost": "max_cost", "tokens": "max_tokens", "calls": "max_calls"}


@command(
    "budget", "[EVALUATIONS] [cost=USD] [tokens=N] [calls=N]", words=lambda session: [f"{name}=" for name in _CAPS]
)
async def budget(session: Session, argument: str) -> None:
    """Say or set how many candidates may be evaluated in all, and what models may cost."""
    now = await session.search.standing()
    caps: dict[str, float] = {}
    evaluations: int | None = None
    for word in argument.split():
        name, equals, text = word.partition("=")
        if equals and name in _CAPS:
            caps[_CAPS[name]] = _figure(name, text)
        else:
            evaluations = _evaluations(word, now.used)
    if evaluations is not None:
        session.set_settings(budget=evaluations)
    if caps:
        session.take_policy(session.settings.policy, session.caps.model_copy(update=caps))
        session.store.event("chat_settings", **caps)
    session.screen.line(f"{now.used} of {count(session.settings.budget, 'evaluation')} used")
    limits = {name: getattr(session.caps, cap) for name, cap in (*_CAPS.items(), ("minutes", "minutes"))}
    held = [f"{name} at most {value:,}" for name, value in limits.items() if value is not None]
    if held:
        session.screen.line(f"models: {', '.join(held)}; /cost shows what was spent")


def _evaluations(text: str, used: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 7 or int(text) < 1:
        raise UserError(f"/budget {text[:40]}: give a number of evaluations, or cost=USD, tokens=N, calls=N")
    if int(text) < used:
        raise UserError(f"/budget {text}: {count(used, 'evaluation')} made already, give at least as many")
    return int(text)


def _figure(name: str, text: str) -> float:
    try:
        value = float(text) if name == "cost" else int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e12:
        raise UserError(f"{name}={text[:40]}: give a number from 0")
    return value


@command("cost")
async def cost(session: Session, argument: str) -> None:
    """Show what the session has cost: money, tokens, device time."""
    session.screen.table(cost_rows(session) or [("models: none was asked",)])
    session.screen.line(judge_line(session))
