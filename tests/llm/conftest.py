"""A scripted server with an asker on it: real HTTP on loopback."""

from collections.abc import Callable, Iterator

import pytest
from llm.kit import Desk


@pytest.fixture
def desk() -> Iterator[Callable[..., Desk]]:
    """`desk(dialect=..., faults=..., ...)`: a started server and an asker; ended after the test."""
    opened: list[Desk] = []

    def make(**settings: object) -> Desk:
        opened.append(Desk.open(**settings))
        return opened[-1]

    yield make
    for each in opened:
        each.close()
