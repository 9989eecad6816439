"""Decisions: what roles wish, checked against who owns what, and applied to a base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.slots import SlotEdit, Values


def refusal(space: SearchSpace, role: str, edits: Iterable[SlotEdit]) -> str | None:
    """Why a role may not make these edits (not its slot, not a legal value), or None."""
    slots = {slot.name: slot for slot in space.choice_slots}
    for edit in edits:
        if edit.slot not in slots:
            return f"no choice slot named {edit.slot!r} in {space.name}"
        if edit.slot not in space.groups.get(role, ()):
            owner = next((r for r, names in space.groups.items() if edit.slot in names), None)
            if owner is None:
                return f"{edit.slot!r} is pinned to {slots[edit.slot].default}"
            return f"{edit.slot!r} belongs to {owner}, not to {role}"
        if edit.value not in slots[edit.slot].values:
            legal = ", ".join(map(str, slots[edit.slot].values))
            return f"{edit.slot}={edit.value!r} is not one of {legal}"
    return None


def applied(space: SearchSpace, base: Values, edits: Mapping[str, tuple[SlotEdit, ...]]) -> Values:
    """The base with every role's edits; edits of a role that are refused are left out as a whole."""
    values = dict(base)
    for role, own in edits.items():
        if refusal(space, role, own) is None:
            values.update({edit.slot: edit.value for edit in own})
    return values
