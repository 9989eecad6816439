"""The replies of a group: one to a task, or one of each role of a team."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.agents.local.decode import Written
from warpsmith.rl.train.task import Asked, Scored, Task, Team

Said = str | tuple[str, ...]
"""What a member replied: a text, or the texts of a team's roles."""


@dataclass(frozen=True, slots=True)
class Member:
    """What one member of a group wrote: a reply of each role."""

    written: tuple[Written, ...]
    said: Said


def roles(asked: Asked) -> Sequence[Task]:
    """The questions that a group answers: a task's own, or those of a team's roles."""
    return asked.roles if isinstance(asked, Team) else (asked,)


def members(asked: Asked, written: Sequence[Written | None]) -> list[Member]:
    """From the replies, role after role, as many of each. A member one of whose replies is missing is missing."""
    count = len(roles(asked))
    size = len(written) // count
    found = []
    for at in range(size):
        own = tuple(one for one in written[at::size] if one is not None)
        if len(own) == count:
            texts = tuple(one.text for one in own)
            found.append(Member(own, texts if isinstance(asked, Team) else texts[0]))
    return found


def scores(asked: Asked, group: Sequence[Member]) -> list[Scored]:
    """What came of the replies; each different one is judged once."""
    said = list(dict.fromkeys(one.said for one in group))
    # What is said is of the kind that the task asks for.
    found = list(asked.score(said))  # type: ignore[arg-type]
    if len(found) != len(said):
        raise ValueError(f"task {asked.name} scored {len(found)} of {len(said)} replies")
    known = dict(zip(said, found, strict=True))
    return [known[one.said] for one in group]


def earned(
    asked: Asked, group: Sequence[Member], scored: Sequence[Scored], advantages: Sequence[float]
) -> list[tuple[float, ...]]:
    """[members][roles]: a task's advantage is its own, a team's is shared out. Members without a reward earn 0."""
    if not isinstance(asked, Team):
        return [(one,) for one in advantages]
    counted = [place for place, one in enumerate(scored) if one.reward is not None]
    texts = [tuple(one.text for one in group[place].written) for place in counted]
    shared = asked.credit(texts, [advantages[place] for place in counted])
    found = [(0.0,) * len(asked.roles)] * len(group)
    for place, own in zip(counted, shared, strict=True):
        found[place] = tuple(own)
    return found
