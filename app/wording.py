"""How figures are worded: every number carries its label (measured or estimated, provenance, class)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # What ends a command words its last line too: it loads nothing that may be missing or take time.
    from warpsmith.kernels.records import Outcome


def printable(text: str) -> str:
    """Text of others as a terminal may show it: what would move its cursor or change its colours is written out."""
    return "".join(
        char if char in "\n\t" or char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def duration(us: float) -> str:
    """Microseconds for a reader: `812 ns`, `184.2 µs`, `5.27 ms`."""
    if us < 1.0:
        return f"{us * 1e3:.0f} ns"
    return f"{us:.1f} µs" if us < 1e3 else f"{us / 1e3:.2f} ms"


def count(number: int, noun: str) -> str:
    """`1 candidate`, `2 candidates`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def slots_text(slots: Mapping[str, Any], limit: int = 8) -> str:
    """Choice slots as `name=value`; code slots (multi-line or long text) are left out."""
    short = [f"{name}={value}" for name, value in slots.items() if 0 < len(str(value)) <= 24 and "\n" not in str(value)]
    return " ".join(short[:limit])


def outcome_line(data: Mapping[str, Any]) -> str:
    """One evaluated candidate: place in the budget, status, time with its label, what it was."""
    index, budget = data.get("index"), data.get("budget")
    place = f"[{index:>3}/{budget}]" if index is not None and budget is not None else "[full   ]"
    status = str(data.get("status", "?"))
    time_us, estimated = data.get("time_us"), data.get("estimated_us")
    if time_us is not None:
        speed = f"{duration(time_us):>10} measured "
    elif estimated is not None and status in ("ok", "screened"):
        speed = f"{duration(estimated):>10} estimated"
    else:
        speed = f"{'':>20}"
    mark = "*" if data.get("best") else " "
    text = f"{place}{mark}{status:<14} {speed} {data.get('family', ''):<8} {slots_text(data.get('slots') or {})}"
    failure = data.get("failure")
    return printable(f"{text.rstrip()}  {failure}" if failure else text.rstrip())


def outcome_text(outcome: Outcome) -> str:
    """One candidate and its status with its time, or with why it failed."""
    text = f"{outcome.candidate}: {outcome.status}"
    if outcome.failure is not None:
        lines = outcome.failure.message.splitlines()
        text += f", {outcome.failure.stage}: {lines[0] if lines else outcome.failure.kind}"
    elif outcome.time_us is not None:
        text += f", {duration(outcome.time_us.p50)} measured"
    elif outcome.estimated_us is not None:
        text += f", {duration(outcome.estimated_us)} estimated"
    return printable(text)


def speedup_text(outcome: Outcome) -> list[str]:
    """A line for each measured ratio, with interval, baseline and n."""
    lines = []
    for name, ratio in (outcome.speedup or {}).items():
        n = outcome.time_us.n if outcome.time_us else 0
        lines.append(f"  {ratio.value:.3f}x over {name} (95 % interval {ratio.low:.3f} to {ratio.high:.3f}, n={n})")
    return lines


def share_text(own_share: float, steps: int | None) -> str:
    """Whose kernels take the device time."""
    measured = f", measured over {count(steps, 'step')}" if steps else ""
    return f"own kernels take {own_share:.1%} of the device time{measured}"


def verdict_text(outcome: Outcome) -> str:
    """The whole verdict on one candidate, for a reader."""
    lines = [f"candidate {outcome.candidate}: {outcome.status}"]
    if outcome.failure is not None:
        where = f" in slot {outcome.failure.slot}" if outcome.failure.slot else ""
        lines.append(f"  {outcome.failure.stage}{where}: {outcome.failure.message}")
    if outcome.status == "ok":
        lines.append(
            f"  verified on {outcome.verified_on}; {outcome.provenance}, {outcome.precision_class}; "
            f"error ratio to eager {_figure(outcome.error_ratio)}, "
            f"max abs error {_figure(outcome.max_abs_error)}"
        )
        lines += _shapes_text(outcome)
    if outcome.time_us is not None:
        q = outcome.time_us
        lines.append(f"  {duration(q.p50)} measured (p10 {duration(q.p10)}, p90 {duration(q.p90)}, n={q.n})")
    elif outcome.estimated_us is not None and outcome.correct:
        lines.append(f"  {duration(outcome.estimated_us)} estimated by the cost model, not measured")
    lines += speedup_text(outcome)
    if outcome.own_share is not None:
        lines.append(f"  {share_text(outcome.own_share, len(outcome.steps_us) if outcome.steps_us else None)}")
    if outcome.roofline_fraction is not None:
        lines.append(f"  {outcome.roofline_fraction:.0%} of the roofline")
    if outcome.registers is not None:
        lines.append(
            f"  {outcome.registers} registers, {outcome.spills} B spilled, {outcome.shared_bytes} B shared memory"
        )
    lines += [f"  warning: {text}" for text in outcome.warnings]
    return printable("\n".join(lines))


def _shapes_text(outcome: Outcome) -> list[str]:
    """For which shapes the verdict holds."""
    if outcome.shape_specific is None:
        return []
    if outcome.shape_specific:
        return ["  holds for the declared shape alone: no other shape was judged"]
    return ["  holds at hidden shapes as well"]


def _figure(value: float | None) -> str:
    return "not taken" if value is None else f"{value:.3g}"
