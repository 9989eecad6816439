"""Decisions: what roles wish, checked against who owns what, and applied to a base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.slot_text import refuse_code
from warpsmith.kernels.slots import Slot, SlotEdit, Values, local_name


def refusal(space: SearchSpace, role: str, edits: Iterable[SlotEdit]) -> str | None:
    """Why a role may not make these edits (not its slot, not a legal value, text that no slot may hold), or None."""
    slots = {slot.name: slot for slot in (*space.choice_slots, *space.code_slots)}
    for edit in edits:
        slot = slots.get(edit.slot)
        if slot is None:
            return f"no slot named {edit.slot!r} in {space.name}"
        owner = owner_of(space, slot)
        if (
            slot.kind == "choice"
            and len(slot.values) == 1
            and not any(edit.slot in own for own in space.groups.values())
        ):
            return f"{edit.slot!r} is pinned to {slot.default}"
        if owner != role:
            return f"{edit.slot!r} belongs to {owner}, not to {role}"
        problem = _code(space, edit) if slot.kind == "code" else _choice(slot, edit)
        if problem is not None:
            return problem
    return None


def owner_of(space: SearchSpace, slot: Slot) -> str:
    """Who may change a slot: choice slots as the space groups them, code slots as the slot says."""
    return next((role for role, names in space.groups.items() if slot.name in names), slot.owner)


def applied(space: SearchSpace, base: Values, edits: Mapping[str, tuple[SlotEdit, ...]]) -> Values:
    """The base with every role's edits; edits of a role that are refused are left out as a whole."""
    values = dict(base)
    for role, own in edits.items():
        if refusal(space, role, own) is None:
            values.update({edit.slot: edit.value for edit in own})
    return values


def _choice(slot: Slot, edit: SlotEdit) -> str | None:
    if edit.value in slot.values:
        return None
    legal = ", ".join(map(str, slot.values))
    return f"{edit.slot}={edit.value!r} is not one of {legal}"


def _code(space: SearchSpace, edit: SlotEdit) -> str | None:
    if not isinstance(edit.value, str):
        return f"{edit.slot!r} is a code slot: it takes text"
    problem = refuse_code(edit.value, frozenset(local_name(slot.name).upper() for slot in space.choice_slots))
    return f"{edit.slot}: {problem}" if problem is not None else None
