"""Ctrl-C while a model is asked: nobody waits for the reply."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Protocol

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stoppable(Protocol):
    """Who is asked."""

    def stop(self) -> None:
        """Ends the questions under way and refuses new ones. Safe in a signal handler."""


@contextlib.contextmanager
def stopped_by_signals(askers: Iterable[Stoppable]) -> Iterator[None]:
    """SIGINT and SIGTERM end all questions under way, then do what they did before. A handler that is set inside the
    block comes first, and hands over by restoring this one: as with a run that drains at the first signal. Without
    effect outside the main thread, and for signals that the parent has ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    every = list(askers)
    before = {number: signal.getsignal(number) for number in _NUMBERS}

    def stop(number: int, frame: FrameType | None) -> None:
        for asker in every:
            asker.stop()
        handler = before[signal.Signals(number)]
        signal.signal(number, handler)
        if callable(handler):
            handler(number, frame)
        else:
            signal.raise_signal(number)

    handled = [number for number in _NUMBERS if before[number] is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
