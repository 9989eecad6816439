"""From a policy's proposal to a candidate: who may edit what, and proof that an edit touched nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.agents.decisions import refusal
from warpsmith.agents.policy import Proposal
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.slots import Values


@dataclass(frozen=True, slots=True)
class Refused:
    """Edits of one role that were left out, and why."""

    role: str
    slots: tuple[str, ...]
    reason: str


def edited(
    spec: KernelSpec, space: SearchSpace, base: Values, made: Proposal
) -> tuple[Values | None, tuple[Refused, ...]]:
    """The values after a proposal's edits, and what was refused. Edits of a role hold or fall as a whole; None where
    what is left cannot run."""
    values, refused = dict(base), []
    for role, own in made.edits.items():
        after = values | {edit.slot: edit.value for edit in own}
        slots = tuple(edit.slot for edit in own)
        reason = refusal(space, role, own) or _beyond(spec, values, after, slots)
        if reason is None:
            values = after
        else:
            refused.append(Refused(role, slots, reason))
    invalid = space.check(values)
    if invalid is not None:
        roles = ", ".join(made.edits) or "none"
        return None, (*refused, Refused(roles, invalid.slots, invalid.message))
    return values, tuple(refused)


def code_edits(spec: KernelSpec, values: Values) -> Values:
    """The code slots whose text is not the lowering's own."""
    code = [slot for slot in spec.slots if slot.kind == "code"]
    return {slot.name: values[slot.name] for slot in code if values.get(slot.name, slot.default) != slot.default}


def _beyond(spec: KernelSpec, before: Values, after: Values, slots: tuple[str, ...]) -> str | None:
    """What an edit of code would change beyond its slots. Choices are constants and cannot; and only values that can
    run have a text to compare."""
    code = {slot.name for slot in spec.slots if slot.kind == "code"}
    if not code.intersection(slots) or spec.check(before) is not None or spec.check(after) is not None:
        return None
    found = differences_elsewhere(spec.emit(before), spec.emit(after), slots)
    return f"the edit would change {', '.join(found)}" if found else None
