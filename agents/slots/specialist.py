"""Specialists: trained weights in a file, for an architecture and a class of operators, and the nearest to a space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ValidationError

from warpsmith.agents.slots.layout import Layout, View
from warpsmith.agents.slots.settings import LearnSettings
from warpsmith.agents.slots.weights import Weights, zeros
from warpsmith.agents.space import RestrictedSpace, SearchSpace, SpecSpace
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Record, SlotValue
from warpsmith.kernels.slots import local_name

ENDING = ".slots.json"


class SlotColumns(Record):
    """One slot as it was trained."""

    name: str
    role: str
    values: tuple[SlotValue, ...]


class Specialist(Record):
    """What training wrote."""

    version: Literal[1] = 1
    operator_class: str
    """Of a table what its name says before the last `_`; of a live space its family."""
    arch: str
    """Of a table the device behind the last `_`; of a live space the architecture (`sm_90`)."""
    view: View
    slots: tuple[SlotColumns, ...]
    """In the order of decisions; one-hot columns follow from their values."""
    bias: tuple[float, ...]
    pairs: tuple[tuple[float, ...], ...]
    made: dict[str, str | int | float]
    """How it was trained: algorithm, evaluations, seed, data, start."""
    learn: LearnSettings | None = None
    """How it goes on learning in a search; None: by the defaults."""


def kind_of(space: SearchSpace) -> tuple[str, str]:
    """Class of operators and architecture of a space."""
    inner = space
    while isinstance(inner, RestrictedSpace):
        inner = inner.whole
    if isinstance(inner, SpecSpace):
        return inner.spec.family.name, inner.spec.device.arch
    name, _, device = inner.name.rpartition("_")
    return (name, device) if name else (inner.name, "")


def specialist_of(
    layout: Layout, weights: Weights, made: dict[str, str | int | float], learn: LearnSettings | None = None
) -> Specialist:
    """The record of trained weights."""
    operators, arch = kind_of(layout.grid.space)
    slots = [layout.grid.slots[column] for column in layout.order]
    return Specialist(
        operator_class=operators, arch=arch, view=layout.view, made=made, learn=learn,
        slots=tuple(
            SlotColumns(name=slot.name, role=role, values=slot.values)
            for slot, role in zip(slots, layout.roles, strict=True)
        ),
        bias=tuple(np.round(weights.bias, 6).tolist()),
        pairs=tuple(tuple(row) for row in np.round(weights.pairs, 6).tolist()),
    )  # fmt: skip


def save(specialist: Specialist, path: Path) -> None:
    """Writes the file whole or not at all."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(specialist.model_dump_json())
    beside.replace(path)


def read_specialists(path: Path) -> tuple[Specialist, ...]:
    """Of a file, or of all `*.slots.json` in a folder, by name. UserError where there is none, or one that is none."""
    files = sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise UserError(f"slots:{path}: name a file that slot training wrote, or a folder with some (*{ENDING})")
    return tuple(_read(file) for file in files)


def _read(file: Path) -> Specialist:
    try:
        found = Specialist.model_validate_json(file.read_text())
    except (ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"slots:{file}: not a specialist that slot training wrote: {error}") from error
    width = sum(len(slot.values) for slot in found.slots)
    if len(found.bias) != width or any(len(row) != width for row in found.pairs) or len(found.pairs) != width:
        raise UserError(f"slots:{file}: {width} values, but weights of another size; train it again")
    return found


def nearest(specialists: Sequence[Specialist], space: SearchSpace) -> Specialist | None:
    """The one to begin from: of the same class of operators before others, then whose slots and values are the most
    like the space's, then of the same architecture. None where nothing is shared."""
    operators, arch = kind_of(space)
    wanted = {(local_name(slot.name), value) for slot in space.choice_slots for value in slot.values}

    def likeness(one: Specialist) -> tuple[bool, float, bool]:
        known = {(local_name(slot.name), value) for slot in one.slots for value in slot.values}
        return one.operator_class == operators, len(known & wanted) / max(len(wanted), 1), one.arch == arch

    best = max(specialists, key=likeness, default=None)
    return best if best is not None and likeness(best)[1] > 0 else None


def warm(layout: Layout, start: Specialist | None) -> Weights:
    """The weights of a specialist on a space: of equal slots and values, for numbers else those of the nearest one (by
    ratio). Slots that it does not know begin without any; one of
    another kernel of a composite is taken for its like."""
    if start is None:
        return zeros(layout)
    columns = columns_of(layout, start)
    known = columns >= 0
    bias = np.where(known, np.asarray(start.bias)[columns], 0.0)
    pairs = np.asarray(start.pairs)[columns][:, columns] * known[:, None] * known[None, :]
    return Weights(bias, pairs * layout.seen)


def columns_of(layout: Layout, start: Specialist) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(width,): the specialist's column of each value, -1 where it has none."""
    begins = np.cumsum([0, *(len(slot.values) for slot in start.slots)])
    places = {local_name(slot.name): i for i, slot in reversed(list(enumerate(start.slots)))}
    places |= {slot.name: i for i, slot in enumerate(start.slots)}
    found: list[int] = []
    for column in layout.order:
        slot = layout.grid.slots[column]
        place = places.get(slot.name, places.get(local_name(slot.name)))
        for value in slot.values:
            index = None if place is None else _like(start.slots[place].values, value)
            found.append(-1 if place is None or index is None else int(begins[place]) + index)
    return np.asarray(found, dtype=np.int64)


def _like(values: Sequence[SlotValue], wanted: SlotValue) -> int | None:
    for i, value in enumerate(values):
        if value == wanted and type(value) is type(wanted):
            return i
    numbers = [i for i, value in enumerate(values) if type(value) is int and value > 0]
    if type(wanted) is not int or wanted <= 0 or not numbers:
        return None
    return min(numbers, key=lambda i: abs(math.log(int(values[i]) / wanted)))
