"""The hack watch: the best replies of a batch are judged once more. What passes once and then fails is a hole of the
judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from warpsmith.rl.train.group import Said
from warpsmith.rl.train.task import Asked, Hole, Scored

MOST = 3
"""Times that one reply is judged once more in a training: what fails now and then has as many chances to be seen."""


@dataclass(frozen=True, slots=True)
class Again:
    """What a second verdict says of one reply."""

    scored: Scored | None
    """What the reply is worth after it; None: the machine failed, which says nothing."""
    hole: Hole | None = None
    """Set where the first verdict was a pass and the second one is none."""


@runtime_checkable
class Rejudged(Protocol):
    """A task whose judge can be asked anew."""

    def again(self, replies: Sequence[Any]) -> Sequence[Again] | None:
        """A full verdict on each by a fresh session with seeds of its own; nothing is looked up. Replies are as `score`
        takes them, none where it is asked whether it can. None where there is nobody to ask."""


@dataclass(frozen=True, slots=True)
class Group:
    """The replies to one task, and what came of them."""

    task: Asked
    said: Sequence[Said]
    scored: Sequence[Scored]


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at a batch came to."""

    scored: list[list[Scored]]
    """Of each group, corrected."""
    judged: int = 0
    """Second verdicts."""
    lost: int = 0
    """Of these, how many the machine's failures left unsaid."""
    holes: tuple[Hole, ...] = ()


@dataclass
class HackWatch:
    """Asks for second verdicts, the best of each batch first. What was asked for is remembered for this process."""

    count: int
    """Second verdicts a batch."""
    _times: Counter[tuple[str, Said]] = field(default_factory=Counter)

    def look(self, groups: Sequence[Group]) -> Looked:
        """Before advantages are given: a reply that fails now is taught against in the same batch."""
        told: dict[tuple[str, Said], Again] = {}
        for task, texts in self._chosen(groups):
            if isinstance(task, Rejudged) and (found := task.again(texts)) is not None:
                told |= {(task.name, text): one for text, one in zip(texts, found, strict=True)}
        self._times.update(list(told))
        scored = [
            [_after(told.get((group.task.name, text)), one) for text, one in zip(group.said, group.scored, strict=True)]
            for group in groups
        ]
        holes = tuple(one.hole for one in told.values() if one.hole is not None)
        return Looked(scored, len(told), sum(one.scored is None for one in told.values()), holes)

    def _chosen(self, groups: Sequence[Group]) -> Iterable[tuple[Asked, list[Said]]]:
        """Replies by task: the best of each group before the second best, and among them those that were doubted least.
        What was doubted often enough makes room for the next."""
        order: dict[tuple[str, Said], tuple[int, int, float]] = {}
        tasks: dict[str, Asked] = {}
        for group in groups:
            # Who has nobody to ask takes no other's turn.
            if not isinstance(group.task, Rejudged) or group.task.again(()) is None:
                continue
            name = group.task.name
            passed = {
                text: -one.reward
                for text, one in zip(group.said, group.scored, strict=True)
                if one.verified and one.reward is not None and self._times[name, text] < MOST
            }
            for place, text in enumerate(sorted(passed, key=passed.__getitem__)):
                found = (place, self._times[name, text], passed[text])
                order[name, text] = min(found, order.get((name, text), found))
            tasks[name] = group.task
        chosen: dict[str, list[Said]] = {}
        for name, text in sorted(order, key=order.__getitem__)[: self.count]:
            chosen.setdefault(name, []).append(text)
        return [(tasks[name], texts) for name, texts in chosen.items()]


def _after(again: Again | None, first: Scored) -> Scored:
    """What a reply is worth: a pass stays what it was."""
    return first if again is None or again.scored is None or again.hole is None else again.scored
