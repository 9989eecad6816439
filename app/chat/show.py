"""How the chat words what happens: the plan, proposals, one line for each evaluation, where the search stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warpsmith.app.chat.hypotheses import hypotheses
from warpsmith.app.wording import count, duration, slots_text, verdict_text
from warpsmith.graph import wishes
from warpsmith.graph.interactive import Standing
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.export import export

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session

MODE_WORDS: Mapping[str, str] = {
    "ask": "the plan, every round and every file are approved by you",
    "auto": "rounds go on by themselves; writing files asks",
    "yolo": "nothing asks",
}
STOPS: Mapping[str, str] = {
    "budget": "the budget of evaluations is used up",
    "minutes": "the minutes are used up",
    "plateau": "nothing has become faster for a while",
    "exhausted": "there is nothing left to try",
    "cap": "a limit of the model's cost is reached",
}


def tool_line(outcome: Outcome, level: str) -> str:
    """One evaluation: compile, check, time, each as far as it got, with labels."""
    parts = [f"compile {_seconds(outcome.compile_s)} {'failed' if outcome.status == 'compile_error' else 'ok'}"]
    failure = outcome.failure
    if outcome.status not in ("compile_error", "rejected"):
        passed = outcome.error_ratio is not None
        checked = "full check" if level == "full" else "quick check"
        parts.append(f"{checked} {_seconds(outcome.verify_s)} {'ok' if outcome.correct and passed else outcome.status}")
    if failure is not None:
        where = f" in {failure.slot}" if failure.slot else ""
        parts.append(f"{failure.stage}{where}: {failure.message.splitlines()[0] if failure.message else failure.kind}")
    elif outcome.cost_us is not None:
        parts.append(cost_text(outcome))
    return f"  {outcome.candidate}  {outcome.family}  {' · '.join(parts)}"


def cost_text(outcome: Outcome) -> str:
    """The time with its label; a ratio only where it was measured, with interval, baseline and n."""
    if outcome.time_us is None:
        return f"{duration(outcome.estimated_us)} estimated" if outcome.estimated_us is not None else "no time"
    text = f"{duration(outcome.time_us.p50)} measured (n={outcome.time_us.n})"
    for name, ratio in (outcome.speedup or {}).items():
        text += f", {ratio.value:.2f}x over {name} ({ratio.low:.2f} to {ratio.high:.2f})"
    return text


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def event(session: Session, kind: str, data: Mapping[str, Any]) -> None:
    """What the search tells while it works."""
    screen = session.screen
    if kind == "text":
        screen.stream(str(data.get("role", "model")), str(data.get("text", "")))
    elif kind == "reply":
        screen.end_stream(str(data.get("role", "model")))
        screen.line(f"  {data.get('role')}: {_reply_text(data)}", "dim")
    elif kind in ("reply_failed", "cap"):
        screen.end_stream(str(data.get("role", "model")))
        screen.note(f"{data.get('role', 'limit')}: {data.get('reason', kind)}")
    elif kind == "round":
        role = f" of {data['role']}" if data.get("role") else ""
        left = count(data["left"], "evaluation")
        screen.line(f"next: {data['round']} round{role} on {data['family']}, {left} left", "dim")
    elif kind == "incumbent":
        screen.line(f"  {data['candidate']} is the best so far", "bold green")
    elif kind == "phase":
        screen.line(str(data["text"]), "dim")


def evaluated(session: Session, kind: str, data: Mapping[str, Any]) -> None:
    """What the judge tells: every outcome as it is there."""
    if kind == "outcome":
        outcome = Outcome.model_validate(data["outcome"])
        session.screen.line(tool_line(outcome, str(data["level"])), "" if outcome.correct else "red")
    elif kind == "phase":
        session.screen.line(f"{data['text']} ...", "dim")


def _reply_text(data: Mapping[str, Any]) -> str:
    parts = [f"{name} -> {_short(value)}" for name, value in (data.get("edits") or {}).items()]
    if data.get("tokens"):
        parts.append(f"{data['tokens']:,} tokens")
    if data.get("cost") is not None:
        parts.append(f"${data['cost']:.4f}")
    if data.get("seconds") is not None:
        parts.append(f"{data['seconds']:.1f} s")
    return ", ".join(parts) or "answered"


async def standing(session: Session, now: Standing) -> None:
    """Where the search stands, after the rounds that were asked for."""
    incumbent = now.values.get("incumbent")
    used = f"{now.used} of {count(session.settings.budget, 'evaluation')} used"
    if incumbent is None:
        session.screen.line(f"{used}; nothing correct so far; /run goes on")
        return
    outcome = session.outcome(incumbent)
    cost = cost_text(outcome) if outcome is not None else "unknown"
    session.screen.line(f"{used}; best {incumbent}: {cost}; /run goes on, /bench gives it the full verdict")


def round_text(now: Standing) -> str:
    """What a round is called where it can be taken back."""
    values = now.values
    role = f" of {values['role']}" if values.get("role") else ""
    return f"{values['step'] + 1} ({values['kind']}{role})"


async def plan(session: Session) -> None:
    """What would be done, and what could be won by estimate, before anything is spent."""
    screen, context = session.screen, session.search.context
    now = await session.search.standing()
    screen.line(session.bench.plan().describe() if context.specs else "no family covers this: free-form candidates")
    settings = session.settings
    screen.line(
        f"on {session.bench.machine.label}, policy {context.policy.name}: up to "
        f"{count(settings.budget, 'evaluation')}, then up to {count(settings.full_verdicts, 'full verdict')}"
    )
    for index in wishes.families(context, now.values):
        space = wishes.space_of(context, now.values, index)
        screen.line(f"family {space.name}: {context.specs[index].family.doc}")
        screen.table(hypotheses(space, context.policy.opening(space)), indent="    ")
    for text in wish_lines(now):
        screen.line(f"  {text}")
    if now.asked:
        screen.line(f"first: {_openings(session, now.asked)}")


def _openings(session: Session, candidates: tuple[str, ...]) -> str:
    return ", ".join(f"{candidate} ({session.store.get_candidate(candidate).family})" for candidate in candidates)


def wish_lines(now: Standing) -> list[str]:
    """Pins, limits, notes and the point to go on from, in words."""
    values = now.values
    lines = [f"pinned: {name}={value}" for name, value in (values.get("pins") or {}).items()]
    lines += [f"limit: {kind} at most {most:,}" for kind, most in (values.get("limits") or {}).items()]
    lines += [f"note: {text}" for text in values.get("notes") or []]
    if values.get("root"):
        lines.append(f"going on from {values['root']}")
    return lines


async def proposals(session: Session, now: Standing) -> None:
    """What would be evaluated, as differences to what each was derived from."""
    session.screen.line(f"round {round_text(now)} proposes:")
    for ref in now.values["pending"]:
        candidate = session.store.get_candidate(ref["candidate"])
        changes = changed_slots(session, candidate, ref["base"])
        session.screen.line(f"  {candidate.id}  {candidate.family}  {changes}")
    session.screen.line("  /diff ID shows the text", "dim")


def changed_slots(session: Session, candidate: Candidate, base: str | None) -> str:
    """The slots in which a candidate differs from its base."""
    if base is None or not session.store.has_candidate(base):
        return slots_text(candidate.values)
    source = session.store.get_candidate(base)
    if source.family != candidate.family:
        return f"{slots_text(candidate.values) or 'written as a whole'} (from {base}, {source.family})"
    before = source.values
    changes = [
        f"{name} {_short(before.get(name))} -> {_short(value)}"
        for name, value in candidate.values.items()
        if before.get(name) != value
    ]
    return f"{', '.join(changes) or 'the same slots'} (from {base})"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 24 and "\n" not in text else f"{len(text)} characters of code"


def verdict(session: Session, outcome: Outcome) -> None:
    """The whole verdict on one candidate."""
    session.screen.line(verdict_text(outcome), "green" if outcome.correct else "red")


def write_best(session: Session, outcome: Outcome) -> None:
    """Writes `best/`; a module without a file has no ModelNew."""
    folder = session.store.write_best(session.store.get_candidate(outcome.candidate), outcome)
    session.screen.line(f"written: {folder}")
    try:
        export(session.store, "model_new")
    except UserError as error:
        session.screen.note(f"no model_new.py: {error}")
