"""Owns assembly: template and slot texts to source, edits to values, proof that edits kept to their slots.

A template is a `.cu` file in two layers. Jinja (undefined names are errors) writes what depends on region and
device: `${name}` in a line and `//% for ... / //% endfor` as whole lines. What is left holds slot markers,
each a line of its own: `//@choices` becomes a constant a choice slot, `//@slot NAME` a code slot's text.

The text of a slot is therefore exactly the lines of `source` that `slot_lines` names. A choice slot acts
through its constant alone (`if constexpr`, array sizes, template arguments), so all else of the source, the
skeleton, is the same for all values of all slots; `differences_elsewhere` checks just that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import jinja2

from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan, SlotValue
from warpsmith.kernels.slot_text import refuse_code
from warpsmith.kernels.slots import Decision, Slot, Values, local_name
from warpsmith.kernels.units import Unit

_MARKER = re.compile(r"^(?P<indent>[ \t]*)//@(?P<kind>slot[ \t]+(?P<name>\w+)|choices)[ \t]*$")


@dataclass(frozen=True, slots=True)
class Assembled:
    """Source text and, by slot, the first and last line (1-based) of its text."""

    source: str
    slot_lines: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Refused:
    """An edit that was not made: who wanted which slot, and why not."""

    role: str
    slot: str
    value: SlotValue
    reason: str


@dataclass(frozen=True, slots=True)
class Edited:
    """Values after all edits that were allowed, and those that were not."""

    values: Values
    refused: tuple[Refused, ...]


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined, variable_start_string="${", variable_end_string="}",
        block_start_string="//%%", block_end_string="%%//", comment_start_string="//##",
        comment_end_string="##//", line_statement_prefix="//%", keep_trailing_newline=True, trim_blocks=True,
    )  # fmt: skip


@cache
def load_template(name: str) -> str:
    """Text of a template that ships beside the families (`map.cu`)."""
    return resources.files("warpsmith.kernels.families").joinpath(name).read_text()


@lru_cache(maxsize=64)
def _compiled(template: str) -> jinja2.Template:
    """Compiling a template takes far longer than rendering it, and a search renders few templates often."""
    return _environment().from_string(template)


def render(template: str, context: Mapping[str, Any]) -> str:
    """First layer: the region's and device's part of a template, slot markers left in place."""
    text: str = _compiled(template).render(**context)
    return text


def indent(text: str, by: str) -> str:
    """Text with `by` before every line that is not empty."""
    return "\n".join(by + line if line else line for line in text.split("\n"))


def choice_line(slot: Slot, value: SlotValue, enum: str | None = None) -> str:
    """The text of a choice slot: one constant, named like the slot in upper case.

    A string value becomes `<enum>_<value>` of the C++ enum `enum`, which the template declares.
    """
    name = slot.name.upper()
    if isinstance(value, bool):
        return f"constexpr bool {name} = {str(value).lower()};"
    if isinstance(value, int):
        return f"constexpr int {name} = {value};"
    if enum is None:
        raise ValueError(f"slot {slot.name} holds text, so its template needs an enum")
    return f"constexpr {enum} {name} = {enum.lower()}_{_identifier(value)};"


Enums = Mapping[str, str]
"""C++ enum by name of a choice slot that holds text."""


def slot_texts(slots: Iterable[Slot], values: Values, enums: Enums | None = None) -> dict[str, str]:
    """Text by slot name, choice slots first in their order."""
    enums = enums or {}
    texts = {}
    for slot in sorted(slots, key=lambda slot: slot.kind != "choice"):
        value = values.get(slot.name, slot.default)
        choice = slot.kind == "choice"
        texts[slot.name] = choice_line(slot, value, enums.get(slot.name)) if choice else str(value)
    return texts


def assemble(text: str, slots: Iterable[Slot], values: Values, enums: Enums | None = None) -> Assembled:
    """Second layer: slot texts take the place of their markers. Every code slot needs exactly one marker."""
    slots = tuple(slots)
    texts = slot_texts(slots, values, enums)
    choices = [slot.name for slot in slots if slot.kind == "choice"]
    lines: list[str] = []
    ranges: dict[str, tuple[int, int]] = {}
    for line in text.split("\n"):
        marker = _MARKER.match(line)
        if marker is None:
            lines.append(line)
            continue
        for name in choices if marker["name"] is None else [marker["name"]]:
            if name in ranges or name not in texts:
                raise ValueError(f"template marker for slot {name!r} is repeated or unknown")
            first = len(lines) + 1
            lines.extend(indent(_code_text(name, texts[name]), marker["indent"]).split("\n"))
            ranges[name] = (first, len(lines))
    missing = sorted(set(texts) - set(ranges))
    if missing:
        raise ValueError(f"the template has no marker for slots {', '.join(missing)}")
    return Assembled("\n".join(lines), ranges)


def apply_edits(
    spec: KernelSpec,
    values: Values,
    decisions: Iterable[Decision],
    *,
    owners: Mapping[str, str] | None = None,
) -> Edited:
    """Values after the decisions' edits, less those of slots that the role does not own or of illegal values.

    `owners` replaces the slots' own role map (slot -> role), for runs in which each slot is its own role.
    """
    slots = {slot.name: slot for slot in spec.slots}
    reserved = frozenset(local_name(slot.name).upper() for slot in spec.choice_slots)
    result, refused = dict(values), []
    for decision in decisions:
        for edit in decision.edits:
            reason = _refusal(slots.get(edit.slot), decision.role, edit.value, owners or {}, reserved)
            if reason is None:
                result[edit.slot] = edit.value
            else:
                refused.append(Refused(decision.role, edit.slot, edit.value, reason))
    return Edited(result, tuple(refused))


def _refusal(
    slot: Slot | None, role: str, value: SlotValue, owners: Mapping[str, str], reserved: frozenset[str]
) -> str | None:
    if slot is None:
        return "no such slot"
    owner = owners.get(slot.name, slot.owner)
    if owner != role:
        return f"the slot belongs to {owner}"
    if slot.kind == "code":
        return refuse_code(value, reserved) if isinstance(value, str) else "a code slot takes text"
    if not any(value == legal and type(value) is type(legal) for legal in slot.values):
        return f"not one of {', '.join(map(str, slot.values))}"
    return None


def slot_text(candidate: Candidate, slot: str) -> str:
    """The lines of the source that are the slot's text."""
    first, last = candidate.slot_lines[slot]
    return "\n".join(candidate.source.split("\n")[first - 1 : last])


def skeleton(made: Candidate | Unit) -> str:
    """The source, or the text of a unit of it, with every slot's text replaced by its marker."""
    lines = (made.text if isinstance(made, Unit) else made.source).split("\n")
    for name, (first, last) in sorted(made.slot_lines.items(), key=lambda item: -item[1][0]):
        lines[first - 1 : last] = [f"//@slot {name}"]
    return "\n".join(lines)


def fixed_kernels(made: Candidate | Unit) -> frozenset[str]:
    """Names of the kernels in the fixed text of a candidate made from a template or of a unit, launched or not."""
    text = skeleton(made)
    heads = (text[match.end() : text.find("{", match.end())] for match in re.finditer(r"__global__\b", text))
    called = (re.findall(r"\b(\w+)\s*\(", head) for head in heads)
    return frozenset(next((name for name in found if not name.startswith("__")), "") for found in called)


def unchanged_elsewhere(before: Candidate, after: Candidate, slots: Iterable[str]) -> bool:
    """Whether nothing but the named slots' text differs (see `differences_elsewhere`)."""
    return not differences_elsewhere(before, after, slots)


def differences_elsewhere(before: Candidate, after: Candidate, slots: Iterable[str]) -> tuple[str, ...]:
    """What differs between two candidates beyond the edited slots; empty means the edit kept to its slots.

    Compared are the skeleton, every other slot's text and value, and the launch plan: an edit of code may not
    touch the plan, an edit of a choice may change launch shape, steps and scratch, not a kernel's tensors.
    """
    edited = set(slots)
    found = []
    if before.family != after.family or before.precision_class != after.precision_class:
        found.append("family or precision class")
    if not (_sound(before) and _sound(after)):
        return (*found, "slot lines that do not hold what the slot values say")
    if before.slot_lines.keys() != after.slot_lines.keys():
        return (*found, "set of slots")
    if skeleton(before) != skeleton(after):
        found.append("fixed text")
    found += [f"text of slot {name}" for name in before.slot_lines
              if name not in edited and slot_text(before, name) != slot_text(after, name)]  # fmt: skip
    found += [f"value of slot {name}" for name in sorted(before.values.keys() | after.values.keys())
              if name not in edited and before.values.get(name) != after.values.get(name)]  # fmt: skip
    if before.plan != after.plan:
        choice = any(_is_choice(before, name) and _is_choice(after, name) for name in edited)
        if not (choice or any(_of_plan(before, name) and _of_plan(after, name) for name in edited)) or _wiring(
            before.plan, after.plan
        ):
            found.append("launch plan")
    return tuple(found)


def _sound(candidate: Candidate) -> bool:
    """Line ranges lie in the source without overlap and hold exactly what the slot values say."""
    count, previous = len(candidate.source.split("\n")), 0
    for name, (first, last) in sorted(candidate.slot_lines.items(), key=lambda item: item[1][0]):
        if not previous < first <= last <= count:
            return False
        if not (_is_choice(candidate, name) or _is_code(candidate, name)):
            return False
        previous = last
    return True


def unsound_slot(candidate: Candidate) -> tuple[str, str] | None:
    """The first slot whose lines of the source are not what its value says, or may not stand there, and why."""
    for name in candidate.slot_lines:
        value = candidate.values.get(name)
        if _is_choice(candidate, name) or _is_code(candidate, name):
            continue
        reason = refuse_code(value) if isinstance(value, str) else None
        return name, reason or "the slot's lines of the source are not what its value says"
    return None


def _is_choice(candidate: Candidate, name: str) -> bool:
    """Whether the slot's lines are the one constant that its value asks for."""
    value = candidate.values.get(name)
    if name not in candidate.slot_lines or value is None:
        return False
    constant = re.fullmatch(rf"\s*constexpr (\w+) {local_name(name).upper()} = (-?\w+);", slot_text(candidate, name))
    if constant is None:
        return False
    ctype, text = constant.groups()
    if isinstance(value, bool | int):
        return ctype in ("bool", "int") and text == str(value).lower()
    return text == f"{ctype.lower()}_{_identifier(value)}"


def _of_plan(candidate: Candidate, name: str) -> bool:
    """Whether the slot has a value and no text: it acts through the launch plan alone."""
    return name in candidate.values and name not in candidate.slot_lines


def _is_code(candidate: Candidate, name: str) -> bool:
    """Whether the slot's lines are its value, indented, and stay a statement list in their place."""
    value = candidate.values.get(name)
    if not isinstance(value, str) or refuse_code(value) is not None:
        return False
    given = [line.strip() for line in _code_text(name, value).split("\n")]
    return given == [line.strip() for line in slot_text(candidate, name).split("\n")]


def _code_text(name: str, value: str) -> str:
    return value if value.strip() else f"// {local_name(name)}: nothing to do"


def _identifier(value: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "_", value)


def _wiring(before: LaunchPlan, after: LaunchPlan) -> bool:
    """Whether some kernel of both plans is handed different tensors."""

    def wires(plan: LaunchPlan) -> dict[str, set[tuple[str, ...]]]:
        found: dict[str, set[tuple[str, ...]]] = {}
        for step in plan.steps:
            if isinstance(step, KernelStep):
                given = tuple(arg for arg in step.args if isinstance(arg, str))
                found.setdefault(step.kernel, set()).add(given)
        return found

    first, second = wires(before), wires(after)
    return any(first[kernel] != second[kernel] for kernel in first.keys() & second.keys())
