"""Slots: the open places of a kernel template, who owns them and what they may hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels.records import SlotValue

Role = Literal["planner", "config", "memory", "compute", "reduction"]
ROLES: tuple[Role, ...] = ("planner", "config", "memory", "compute", "reduction")
Values = dict[str, SlotValue]


_OF_KERNEL = re.compile(r"p\d+_")


def local_name(slot: str) -> str:
    """A slot's name within its kernel: the composer puts the kernel's number before it (`p0_block`)."""
    return _OF_KERNEL.sub("", slot, count=1) if _OF_KERNEL.match(slot) else slot


@dataclass(frozen=True, slots=True)
class Slot:
    """An open place of a template.

    A `choice` slot takes one of `values`; a `code` slot takes device-code text (a statement list), whose default the
    lowering wrote. Values of a choice slot are ordered where order means something (sizes ascending).
    """

    name: str
    owner: Role
    kind: Literal["choice", "code"]
    values: tuple[SlotValue, ...]
    """Legal values of a choice slot; for a code slot the default text alone."""
    default: SlotValue
    """The naive value: what an unoptimised kernel would do."""
    doc: str


@dataclass(frozen=True, slots=True)
class SlotEdit:
    """One role's wish for one slot."""

    slot: str
    value: SlotValue
    why: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one role does in one round."""

    role: Role
    edits: tuple[SlotEdit, ...]
