"""Timings of one device, each with what it computes: the file that default weights are made from.

JSON lines, compressed where the name ends in `.xz`: `{"problem", "region"}` says what a problem computes, `{"problem",
"family", "values", "time_us", "device"}` is a measured candidate of it (device: NVIDIA H200 where it is left out).
"""

from __future__ import annotations

import json
import lzma
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from warpsmith.agents.slots.layout import Floats, Ints, Layout
from warpsmith.agents.space import Grid, SpecSpace
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DEVICES, DeviceModel
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.records import Record
from warpsmith.kernels.slots import Values

REFERENCE = "NVIDIA H200"
_REGIONS: TypeAdapter[AnyRegion] = TypeAdapter(AnyRegion)


class Measured(Record):
    """One measured candidate."""

    problem: str
    family: str
    values: dict[str, Any]
    time_us: float
    device: str = REFERENCE


@dataclass(frozen=True)
class Recorded:
    """The measured candidates of one space, each once."""

    problem: str
    device: str
    layout: Layout
    choices: Ints
    """(n, slots)."""
    log_us: Floats
    """(n,): natural logarithms of microseconds; the mean where a candidate was measured several times."""


def write_records(path: Path, regions: Mapping[str, AnyRegion], measured: Iterable[Measured]) -> None:
    """Writes the file anew."""
    lines = [
        json.dumps({"problem": name, "region": _REGIONS.dump_python(region, mode="json")})
        for name, region in regions.items()
    ]
    text = "".join(f"{line}\n" for line in (*lines, *(one.model_dump_json() for one in measured))).encode()
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)


def read_records(path: Path, *, least: int = 4) -> list[Recorded]:
    """The spaces in a file of which at least `least` candidates still exist: slots that a family no longer has are left
    out, slots that it has got since are at their prior. UserError names the line that is wrong."""
    regions: dict[str, AnyRegion] = {}
    found: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
    for number, line in _lines(path):
        try:
            given = json.loads(line)
            if "region" in given:
                regions[str(given["problem"])] = _REGIONS.validate_python(given["region"])
            else:
                one = Measured.model_validate(given)
                if not (math.isfinite(one.time_us) and one.time_us > 0):
                    raise ValueError(f"time_us is {one.time_us}")
                found[one.problem, one.family, one.device].append(one)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise UserError(f"{path}, line {number}: no timing and no region ({error}); record it anew") from error
    made = [_recorded(regions.get(key[0]), members) for key, members in found.items()]
    return [one for one in made if one is not None and len(one.choices) >= least]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        raw = path.read_bytes()
        text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); name a file of timings (.jsonl or .jsonl.xz)") from error
    return ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())


def _recorded(region: AnyRegion | None, members: list[Measured]) -> Recorded | None:
    first = members[0]
    if region is None:
        raise UserError(f"{first.problem} has timings and no region: a line with it has to be in the same file")
    space = _space(region, first.family, _device(first.device))
    if space is None:
        return None
    grid, times = Grid(space), defaultdict[tuple[int, ...], list[float]](list)
    for one in members:
        values = _known(grid, space.sensible(), one.values)
        if values is not None and grid.valid(point := grid.point(values)):
            times[point].append(math.log(one.time_us))
    layout = Layout(grid)
    means = np.array([sum(logs) / len(logs) for logs in times.values()])
    return Recorded(first.problem, first.device, layout, layout.choices(list(times)), means)


def _space(region: AnyRegion, family: str, device: DeviceModel) -> SpecSpace | None:
    """The family's space today; None where it no longer takes the region."""
    try:
        return next((SpecSpace(one) for one in specs_for(region, device) if one.family.name == family), None)
    except NotYetError:
        return None


def _known(grid: Grid, prior: Values, values: Mapping[str, Any]) -> Values | None:
    """A measured combination in today's slots; None where a value is no longer among a slot's."""
    known = {slot.name: slot.values for slot in grid.slots}
    kept = {name: value for name, value in values.items() if name in known}
    if any(value not in known[name] for name, value in kept.items()):
        return None
    return prior | kept


def _device(name: str) -> DeviceModel:
    for device in DEVICES:
        if device.name == name:
            return device
    raise UserError(f"{name!r} is no device that the cost model knows: {', '.join(one.name for one in DEVICES)}")
