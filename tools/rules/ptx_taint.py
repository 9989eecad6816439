"""Proves that a kernel only reads the variables of its module: no write goes through an address derived from one.

A variable of the module outlives a launch, so what is written there reaches the next one. Constant tables are read
only; a compiler keeps them in the same space and often drops the mark. Here every register of a function is given a
`Value`: what it may hold, over all assignments and paths. Read through an address may anyone; no one may write through
it, store it, hand it to a call, or use its bits. The distance of two such addresses is a plain number, and so is
whether they are equal: that is how a loop over a table ends. Which of two is larger would tell where they lie, since
sums wrap around.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from warpsmith.tools.rules.ptx_text import Statement, names


class Value(IntEnum):
    """What a register may hold; joins go up."""

    UNSET = 0
    PLAIN = 1
    ADDRESS = 2
    """An address of a variable plus a plain number."""
    EITHER = 3
    """One or the other, as plain numbers decided."""
    MIXED = 4
    """Anything else that an address went into: its bits may be read from it."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Where an address of a variable is written through or given away."""

    at: int
    message: str


@dataclass(frozen=True, slots=True)
class _Step:
    statement: Statement
    targets: tuple[str, ...]
    operands: tuple[tuple[str, ...], ...]
    """Names in every operand behind the first, or in all of them where there is no result."""
    brackets: tuple[frozenset[str], ...]


_READS = frozenset(("ld", "ldu", "prefetch", "prefetchu", "ldmatrix"))
_STORES = frozenset(("st", "red", "atom", "multimem", "stmatrix"))
_NO_RESULT = frozenset(("bra", "brx", "ret", "exit", "trap", "cp", "call"))
_MOVES = frozenset(("mov", "cvta"))
_LAST_IS_BASE = frozenset(("mad", "fma"))
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_CALLEE = re.compile(r"(?:\([^)]*\)\s*,\s*)?([A-Za-z_$%][\w$]*)")
_GIVEN = "has its address handed to a function"
_DECIDES = "has an address whose bits decide something (a loop over a table may count, or end by !=)"
STRING_TAKERS = frozenset(("__assertfail",))
"""Functions that are given addresses of strings and keep none."""


Readers = Mapping[str, frozenset[int]]
"""Functions, with the positions of the parameters through which they only read."""


def find_leak(
    statements: Iterable[Statement], variables: frozenset[str], readers: Readers | None = None, given_as: str = ""
) -> Leak | None:
    """The first statement of a function that may write to one of the variables, or lets its address out. `readers` may
    be handed it; `given_as` names a parameter of the function itself that may hold one."""
    steps = [_step(statement) for statement in statements if not statement.opcode.startswith(".")]
    values = _values(steps, variables, given_as)
    held = frozenset(name for name, value in values.items() if value >= Value.ADDRESS)
    mixed = frozenset(name for name, value in values.items() if value is Value.MIXED)
    given: dict[str, Statement] = {}
    for step in steps:
        message = _misuse(step, held, mixed, given, readers or {})
        if message is not None:
            return Leak(step.statement.at, message)
    return next((Leak(statement.at, _GIVEN) for statement in given.values()), None)


def only_read(
    statements: Sequence[Statement], parameters: Sequence[str], variables: frozenset[str], readers: Readers
) -> frozenset[int]:
    """Positions of the parameters of a function through which it reads and does nothing else."""
    found = set()
    for position, name in enumerate(parameters):
        mentions = [one for one in statements if name in names(one.operands)]
        plain = all(one.opcode == "ld" and ".param" in one.modifiers for one in mentions)
        if plain and find_leak(statements, variables, readers, name) is None:
            found.add(position)
    return frozenset(found)


def _step(statement: Statement) -> _Step:
    brackets = tuple(frozenset(names(inner)) for inner in _BRACKETS.findall(statement.operands))
    parts = [tuple(names(part)) for part in _split(statement.operands)]
    if statement.opcode in _NO_RESULT or statement.operands.startswith("["):
        return _Step(statement, (), tuple(parts), brackets)
    return _Step(statement, parts[0], tuple(parts[1:]), brackets)


def _split(operands: str) -> list[str]:
    """Operands at the commas outside vectors and brackets."""
    if "<" not in operands and "[" not in operands and "(" not in operands:
        return operands.split(",")
    parts, depth, start = [], 0, 0
    for at, char in enumerate(operands):
        if char in "<[(":
            depth += 1
        elif char in ">])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(operands[start:at])
            start = at + 1
    return [*parts, operands[start:]]


def _values(steps: list[_Step], variables: frozenset[str], given_as: str) -> dict[str, Value]:
    """The value of every name that is assigned, and of the variables, at the least fixed point.

    Where names stay unset they are read before they are written, so they start as plain numbers.
    """
    moving = [step for step in steps if step.targets and step.statement.opcode != "call"]
    values = {target: Value.UNSET for step in moving for target in step.targets}
    values.update(dict.fromkeys(variables, Value.ADDRESS))
    if given_as:
        # Some callers may hand over another address: no distance from it is a plain number.
        values[given_as] = Value.EITHER
    readers: dict[str, list[_Step]] = defaultdict(list)
    for step in moving:
        for name in {step.statement.guard, *(name for part in step.operands for name in part)}:
            readers[name].append(step)
    _settle(moving, values, readers, variables)
    unset = [name for name, value in values.items() if value is Value.UNSET]
    values.update(dict.fromkeys(unset, Value.PLAIN))
    _settle([step for name in unset for step in readers[name]], values, readers, variables)
    return values


def _settle(
    first: list[_Step], values: dict[str, Value], readers: Mapping[str, list[_Step]], variables: frozenset[str]
) -> None:
    """Works off steps until nothing changes; a name changes at most three times, so this ends soon."""
    waiting = deque(first)
    while waiting:
        step = waiting.popleft()
        new = _result(step, values)
        for target in step.targets:
            joined = _join(values[target], new)
            if joined is not values[target] and target not in variables:
                values[target] = joined
                waiting.extend(readers.get(target, ()))


def _join(one: Value, other: Value) -> Value:
    if one is other or Value.UNSET in (one, other):
        return max(one, other)
    return max(one, other, Value.EITHER)


def _result(step: _Step, values: dict[str, Value]) -> Value:
    """What a step assigns, given what its operands hold so far; UNSET while one of them is."""
    held = []
    for part in ((step.statement.guard,), *step.operands):
        inner = [values.get(name, Value.PLAIN) for name in part]
        if Value.UNSET in inner:
            return Value.UNSET
        held.append(max(inner, default=Value.PLAIN))
    if Value.MIXED in held or held[0] is not Value.PLAIN:
        return Value.MIXED
    if max(held) is Value.PLAIN:
        return Value.PLAIN
    if _reads(step.statement):
        return _read_from(step, max(held))
    result = _of_addresses(step, held[1:])
    return Value.EITHER if result is Value.ADDRESS and step.statement.guard else result


def _read_from(step: _Step, held: Value) -> Value:
    """What comes of reading through an address, or of reading a parameter that holds one."""
    if ".param" not in step.statement.modifiers:
        return Value.PLAIN
    return held if len(step.targets) == 1 else Value.MIXED


def _of_addresses(step: _Step, held: list[Value]) -> Value:
    """What comes of operands some of which are addresses (or either)."""
    opcode, modifiers = step.statement.opcode, step.statement.modifiers
    if not modifiers.endswith((".b64", ".s64", ".u64", ".wide.s32", ".wide.u32")):
        # Sums of floats are rounded: what comes of an address there is no address, nor a distance.
        return Value.MIXED
    plain = [value is Value.PLAIN for value in held]
    if opcode in _MOVES and len(held) == len(step.targets) == len(step.operands[0]) == 1:
        return held[0]
    if opcode == "add" and len(held) == 2 and any(plain):
        return max(held)
    if opcode == "sub" and len(held) == 2 and plain[1]:
        return held[0]
    if opcode in _LAST_IS_BASE and plain == [True, True, False]:
        return held[2]
    if opcode == "selp" and len(held) == 3 and plain[2]:
        return _join(held[0], held[1])
    distance = opcode == "sub" or (opcode in ("setp", "set") and modifiers.startswith((".eq", ".ne")))
    return Value.PLAIN if distance and held == [Value.ADDRESS, Value.ADDRESS] else Value.MIXED


def _misuse(
    step: _Step, held: frozenset[str], mixed: frozenset[str], given: dict[str, Statement], readers: Readers
) -> str | None:
    """What a step does with an address that it may not. `given` holds parameters of calls that were given one."""
    statement = step.statement
    if statement.guard in mixed and (not step.targets or statement.opcode in (*_STORES, "call")):
        return _DECIDES
    if statement.opcode == "call":
        return _call(statement, held, given, readers)
    if statement.opcode == "st" and ".param" in statement.modifiers and _stores(step, held):
        given.update((name, statement) for inner in step.brackets for name in inner)
        return None
    for position, inner in enumerate(step.brackets):
        if not inner.isdisjoint(held) and not _may_read(statement, position):
            return "is written to"
        if not inner.isdisjoint(mixed) and not step.targets:
            return _DECIDES
    if (statement.opcode in _STORES or ".store" in statement.modifiers) and _stores(step, held):
        return "has its address stored"
    if statement.opcode == "brx" and any(name in held for part in step.operands for name in part):
        return _DECIDES
    return None


def _call(statement: Statement, held: frozenset[str], given: dict[str, Statement], readers: Readers) -> str | None:
    arguments = set(names(statement.operands))
    callee = _CALLEE.match(statement.operands)
    if callee is not None and callee[1] in STRING_TAKERS:
        for name in arguments:
            given.pop(name, None)
        return None
    read = readers.get(callee[1], frozenset()) if callee is not None else frozenset()
    if read and arguments.isdisjoint(held):
        handed = statement.operands.rpartition("(")[2].rstrip(") ").split(",")
        for position, name in enumerate(part.strip() for part in handed):
            if position in read and names(statement.operands).count(name) == 1:
                given.pop(name, None)
    return None if arguments.isdisjoint(held) and arguments.isdisjoint(given) else _GIVEN


def _reads(statement: Statement) -> bool:
    """Whether an instruction's result is what lies at an address."""
    opcode = statement.opcode
    return opcode in _READS or opcode == "atom" or (opcode == "wmma" and ".load" in statement.modifiers)


def _stores(step: _Step, held: frozenset[str]) -> bool:
    """Whether an operand outside brackets may hold an address."""
    inside = frozenset().union(*step.brackets) if step.brackets else frozenset()
    return any(name in held and name not in inside for part in step.operands for name in part)


def _may_read(statement: Statement, position: int) -> bool:
    """Whether the bracket at a position is read and nothing else."""
    if statement.opcode in _READS:
        return True
    if statement.opcode == "cp":
        return position == 1 or (position == 0 and ".prefetch" in statement.modifiers)
    return statement.opcode == "wmma" and ".load" in statement.modifiers
