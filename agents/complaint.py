"""Complaints: what a role or a writer is told of a failure. Never inputs, hidden shapes or their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpsmith.kernels.records import Diagnostic, Failure

MAX_DIAGNOSTICS = 5
"""Compiler messages that are told beyond the failure itself."""
_INPUTS = re.compile(r",? on `[^`]*` inputs|^on `[^`]*` inputs,? ?")
"""Names a kind of hidden input."""
_LINE = re.compile(r"\bline (\d+)")
_PTX_PLACE = re.compile(r",? ?PTX line \d+ \([^)]*\)")
_WORDS: dict[str, str] = {
    "hang": "it does not end: look for a loop without end or a barrier that not all threads reach",
    "deadlock": "it does not end: some threads wait at a barrier that others never reach",
    "guard": "it writes outside of its outputs",
    "inputs_changed": "it changes its inputs, which have to come back as they were",
    "nondeterministic": "its result depends on the order in which threads run",
    "uninitialised": "its result depends on what was in outputs or scratch before: every element has to be written",
    "below_floor": "its time is below what the device can do, so it does not do the whole work",
    "process_died": "the process that ran it died",
}
"""What a kind of failure means, where the judge's own message would say less."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a candidate got no further, as far as its author may know."""

    stage: str
    kind: str | None
    message: str
    slot: str | None
    line: int | None
    """Of the source text, where it is known."""
    diagnostics: tuple[Diagnostic, ...] = ()


def complaint_of(
    failure: Failure, diagnostics: tuple[Diagnostic, ...] = (), slot_lines: Mapping[str, tuple[int, int]] | None = None
) -> Complaint:
    """The failure in words that give away no input: kind, place, and how far off it is. With `slot_lines` the lines of
    messages about a slot count from the first line of its text."""
    message = _INPUTS.sub("", failure.message)
    line = _LINE.search(_PTX_PLACE.sub("", message))
    words = _WORDS.get(failure.kind or "")
    errors = [one for one in diagnostics if one.severity == "error"]
    return Complaint(
        stage=failure.stage,
        kind=failure.kind,
        message=f"{message} ({words})" if words else message,
        slot=failure.slot,
        line=int(line[1]) if line else None,
        diagnostics=tuple(_in_slot(one, slot_lines or {}) for one in errors[:MAX_DIAGNOSTICS]),
    )


def _in_slot(one: Diagnostic, slot_lines: Mapping[str, tuple[int, int]]) -> Diagnostic:
    """The message with its line as the author of the slot counts."""
    if one.slot is None or one.slot not in slot_lines or one.line is None:
        return one
    return one.model_copy(update={"line": one.line - slot_lines[one.slot][0] + 1})
