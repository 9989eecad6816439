"""The chat as a display: what other parts of the app tell goes to the screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from warpsmith.app.chat.screen import Screen

Heard = Callable[[str, Mapping[str, Any]], None]


def _unheard(kind: str, data: Mapping[str, Any]) -> None:
    """For what tells no events."""


class Events:
    """A Display whose events go to `heard`."""

    def __init__(self, screen: Screen, heard: Heard = _unheard) -> None:
        self._screen, self._heard = screen, heard

    def note(self, text: str) -> None:
        """A warning."""
        self._screen.note(text)

    def phase(self, text: str) -> None:
        """A new stage."""
        self._screen.line(f"{text} ...", "dim")

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Passed on."""
        self._heard(kind, data)

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The text."""
        self._screen.line(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None
