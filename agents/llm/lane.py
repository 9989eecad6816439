"""How many requests a server is sent at a time: any number, until it is seen to break one off for the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Turn:
    """One request under way."""

    waited_s: float
    alone: bool
    """Whether no other request was under way at any moment of it."""


class Lane:
    """The requests of this process to one server, whatever the model. Thread-safe.

    llama-cpp-python's server breaks a streamed reply off when another request arrives, and ends the stream as if all
    were well (its setting `interrupt_requests`, on by default).
    """

    def __init__(self) -> None:
        # A condition's own lock is reentrant: a signal may wake waiters while this thread holds it.
        self._changed = threading.Condition()
        self._running: list[Turn] = []
        self._one = False
        self.waiting = 0
        """How many wait for a turn."""

    def narrow(self) -> None:
        """From now on one request at a time."""
        with self._changed:
            self._one = True

    def wake(self) -> None:
        """Has those who wait look whether they still want their turn."""
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def turn(self, gave_up: Callable[[], bool] = lambda: False) -> Iterator[Turn | None]:
        """Waits for a turn; None where `gave_up` came true before one was had."""
        began = time.monotonic()
        with self._changed:
            self.waiting += 1
            self._changed.wait_for(lambda: gave_up() or not (self._one and self._running))
            self.waiting -= 1
            if gave_up():
                mine = None
            else:
                for other in self._running:
                    other.alone = False
                mine = Turn(time.monotonic() - began, alone=not self._running)
                self._running.append(mine)
        try:
            yield mine
        finally:
            if mine is not None:
                with self._changed:
                    self._running = [other for other in self._running if other is not mine]
                    self._changed.notify_all()
