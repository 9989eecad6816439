"""The record of one thing that `doctor` looked at."""

from __future__ import annotations

from typing import Literal

from warpsmith.kernels.records import Record

State = Literal["ok", "absent", "warn", "fail"]
"""`absent`: not here, and nothing needs it; what is lost without it is in the remedy."""


class Check(Record):
    """One thing looked at."""

    name: str
    state: State
    detail: str
    remedy: str | None = None
    """What to do about it; None where nothing needs to be done."""


def check(name: str, state: State, detail: str, remedy: str | None = None) -> Check:
    """A Check in one line."""
    return Check(name=name, state=state, detail=detail, remedy=remedy)
