"""How a training ends before its last update: what is under way is given up, and done again when it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from warpsmith.rl.train.checkpoint import generators, set_generators
from warpsmith.rl.train.ranks import Ranks

T = TypeVar("T")
Check = Callable[[], None]
"""Called often by work that takes long; ends it by raising."""
Doing = Callable[[str, float], None]
"""Hears often what is under way, and for how many seconds."""


class Interrupted(Exception):
    """The training is to end: the work under way is worth nothing any more."""


@dataclass(frozen=True, slots=True)
class Interrupts:
    """Asks whether a training is to end, and tells what it does meanwhile."""

    ranks: Ranks
    asked: Callable[[], bool]
    """Whether this process is to end; asked often."""
    doing: Doing = lambda what, seconds: None

    def heard(self) -> bool:
        """Whether any process is to end: all of them do."""
        return any(self.ranks.gathered(self.asked()))

    def tried(self, what: str, work: Callable[[Check], T]) -> T | None:
        """What the work gives; None where any process was to end before its own was done. Random numbers are then those
        from before, so that the work can be done again."""
        numbers = generators()
        began = time.monotonic()

        def check() -> None:
            self.doing(what, time.monotonic() - began)
            if self.asked():
                raise Interrupted

        found: T | None = None
        done = False
        try:
            found = work(check)
            done = True
        except Interrupted:
            pass
        if all(self.ranks.gathered(done)):
            return found
        set_generators(numbers)
        return None
