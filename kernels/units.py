"""Owns translation units: parts of a source that are compiled apart, so that what did not change is not compiled again.

The composer writes each kernel in a namespace of its own. A namespace that holds slots is a unit; all others, which are
the same in every candidate of a space, are one unit together: each costs the compiler some 15 ms and is a module
of the device. A unit's text says nothing of where it stands in the source, so that a longer text before it makes no
other unit of it; `Unit.line` leads back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warpsmith.kernels.records import Candidate

Lines = tuple[int, int]
"""First and last line of a text, from 1."""

_NAMESPACE = re.compile(r"namespace (?P<name>p\d+)(?P<opens> \{)?$", re.MULTILINE)
_BEHIND = "}  // "
"""What stands before the name of a namespace that ends."""
_SHARED = (
    re.compile(r"#[ \t]*(?!pragma\b|if\b|ifdef\b|ifndef\b|elif\b|else\b|endif\b)"),
    re.compile(r'extern[ \t\n]*"C"(?![ \t\n]*__global__\b)'),
    re.compile(r"::(?<=p\d::)|::(?<=p\d\d::)|::(?<=p\d\d\d::)"),
)
"""How one namespace may come by what is another's: macros, C names of what is no kernel, qualified names. Patterns
begin with a fixed character, as texts are long."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that is compiled on its own."""

    text: str
    pieces: tuple[Lines, ...]
    """Lines of the source that the text consists of, in order."""
    slot_lines: Mapping[str, Lines] = field(default_factory=dict)
    """As of a candidate, by lines of `text`."""
    placed: bool = False
    """Whether every line of `text` has the number that it has in the source."""

    def line(self, own: int | None) -> int | None:
        """The line of the source that is line `own` of the text."""
        if own is None or self.placed:
            return own
        for first, last in self.pieces:
            if own <= last - first + 1:
                return first + own - 1
            own -= last - first + 1
        return None

    def in_place(self, source: str) -> Unit:
        """The same with empty lines for all else of its source, so that whatever a compiler says of lines is right."""
        lines = source.split("\n")
        kept = [""] * len(lines)
        for first, last in self.pieces:
            kept[first - 1 : last] = lines[first - 1 : last]
        slots = {name: (self.line(first) or 0, self.line(last) or 0) for name, (first, last) in self.slot_lines.items()}
        return Unit("\n".join(kept), self.pieces, slots, placed=True)


def namespaced(text: str, number: int) -> str:
    """A text in the namespace of kernel `number`: one line more before it and one behind."""
    return f"namespace p{number} {{\n{text}\n{_BEHIND}namespace p{number}"


def units_of(candidate: Candidate) -> tuple[Unit, ...]:
    """The units of a template's candidate whose slot lines are sound, in the order of the source. One where nothing can
    be told apart, or where namespaces may have more in common than the names of their kernels."""
    source, slots = candidate.source, candidate.slot_lines
    blocks = _blocks(source, slots)
    if len(blocks) < 2 or any(shared.search(source) for shared in _SHARED):
        return (whole(source, slots),)
    held = {block: {name: lines for name, lines in slots.items() if _within(lines, block)} for block in blocks}
    fixed = tuple(block for block in blocks if not held[block])
    parts = [(block,) for block in blocks if held[block]] + ([fixed] if fixed else [])
    if len(parts) == 1:
        return (whole(source, slots),)
    lines = source.split("\n")
    return tuple(_unit(lines, part, held[part[0]]) for part in sorted(parts))


def whole(source: str, slot_lines: Mapping[str, Lines]) -> Unit:
    """A source as one unit."""
    return Unit(source, ((1, source.count("\n") + 1),), dict(slot_lines), placed=True)


def _unit(lines: list[str], part: tuple[Lines, ...], slots: Mapping[str, Lines]) -> Unit:
    text = "\n".join("\n".join(lines[first - 1 : last]) for first, last in part)
    before = part[0][0] - 1
    own = {name: (first - before, last - before) for name, (first, last) in slots.items()}
    return Unit(text, part, own)


def _blocks(source: str, slots: Mapping[str, Lines]) -> tuple[Lines, ...]:
    """Lines of the namespaces, where the source consists of nothing else."""
    found: list[Lines] = []
    opened: tuple[str, int] | None = None
    for line, name, opens in _boundaries(source):
        if any(_within((line, line), one) for one in slots.values()):
            continue
        if opened is None and opens and line == (found[-1][1] if found else 0) + 1:
            opened = name, line
        elif opened is not None and not opens and name == opened[0]:
            found.append((opened[1], line))
            opened = None
        else:
            return ()
    return tuple(found) if opened is None and found and found[-1][1] == source.count("\n") + 1 else ()


def _boundaries(source: str) -> Iterator[tuple[int, str, bool]]:
    """Line, namespace and whether it begins, of every line that begins or ends one as `namespaced` writes it."""
    line, at = 1, 0
    for match in _NAMESPACE.finditer(source):
        before = source.rfind("\n", 0, match.start()) + 1
        if source[before : match.start()] == ("" if match["opens"] else _BEHIND):
            line, at = line + source.count("\n", at, before), before
            yield line, match["name"], bool(match["opens"])


def _within(lines: Lines, outer: Lines) -> bool:
    return outer[0] <= lines[0] and lines[1] <= outer[1]
