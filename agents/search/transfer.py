"""Transfer: the configurations that were fastest on another device, in the order that they had there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.agents.policy import Proposal, Request
from warpsmith.agents.search.asking import proposals
from warpsmith.agents.space import Grid, Point, SearchSpace, nearest_valid
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.slots import Values
from warpsmith.tools.tables.folder import read_table, table_files, table_name
from warpsmith.tools.tables.table import NothingToSearch, Table

PREFIX = "transfer:"
MOST = 1000
"""Configurations of the other device that are looked at."""


@dataclass(frozen=True, slots=True)
class TransferPolicy:
    """Learns nothing from outcomes: the first ten proposals are the other device's top ten."""

    records: tuple[Table, ...]
    """Tables, of which the first with the space's parameters and another name is taken."""
    name: str = "transfer"
    _ranked: dict[str, list[Point]] = field(default_factory=dict, repr=False, compare=False)

    def opening(self, space: SearchSpace) -> Values:
        """The other device's best."""
        return Grid(space).values(self._ranking(space)[0])

    def propose(self, request: Request) -> list[Proposal]:
        """The best of the other device that were not tried; where one cannot run here, the nearest that can."""
        seen = request.seen
        fresh = [point for point in self._ranking(request.space) if point not in seen]
        return proposals(request, fresh[: request.count], "transfer")

    def _ranking(self, space: SearchSpace) -> list[Point]:
        if space.name not in self._ranked:
            self._ranked[space.name] = _ranking(space, self._matching(space))
        return self._ranked[space.name]

    def _matching(self, space: SearchSpace) -> Table:
        wanted = {slot.name for slot in space.choice_slots}
        for table in self.records:
            if table.name != space.name and wanted <= {slot.name for slot in table.slots}:
                return table
        names = ", ".join(table.name for table in self.records)
        raise UserError(
            f"transfer: no record of another device has the parameters of {space.name} ({', '.join(sorted(wanted))}); "
            f"there are {names}"
        )


def transfer_policy(name: str) -> TransferPolicy:
    """From `transfer:PATH`, a table or a folder of tables. UserError where there is none."""
    path = Path(name.removeprefix(PREFIX))
    if path.is_dir():
        return TransferPolicy(tuple(_searchable(table_files(path))), name)
    if not path.is_file() or table_name(path) == path.name:
        raise UserError(f"--policy {name}: name a table, or a folder of tables, recorded on another device")
    return TransferPolicy((read_table(path),), name)


def _searchable(files: Sequence[Path]) -> Iterator[Table]:
    for file in files:
        with contextlib.suppress(NothingToSearch):
            yield read_table(file)


def _ranking(space: SearchSpace, table: Table) -> list[Point]:
    """Points of the space by the table's costs, cheapest first."""
    grid = Grid(space)
    place = {slot.name: i for i, slot in enumerate(table.slots)}
    costed = [(entry.cost_us, key) for key, entry in table.entries.items() if entry.cost_us is not None]
    found: dict[Point, None] = {}
    for _, key in sorted(costed, key=lambda pair: pair[0])[:MOST]:
        values = {slot.name: key[place[slot.name]] for slot in grid.slots}
        if all(values[slot.name] in slot.values for slot in grid.slots):
            runs = values if space.check(values) is None else nearest_valid(space, values)
            if runs is not None:
                found[grid.point(runs)] = None
    if not found:
        raise UserError(f"transfer: no configuration of {table.name} exists in {space.name}")
    return list(found)
