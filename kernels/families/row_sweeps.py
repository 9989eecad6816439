"""Sweeps of a reduce-map over its reduced axes: what each needs, and how templates see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.families import common
from warpsmith.kernels.families.row_access import (
    Geometry,
    Reading,
    Writing,
    alignment_text,
    geometry,
    head_text,
    position_ctype,
    reading,
    writing,
)
from warpsmith.kernels.families.row_monoid import Monoid, fused_pair, product_monoid
from warpsmith.kernels.region import Line, Load, Region, Store
from warpsmith.kernels.slots import Slot

_INNER = ("full", "reduced")


@dataclass(frozen=True, slots=True)
class Sweep:
    """One walk over a row: a round, or the last one that stores."""

    index: int
    lines: tuple[Line, ...]
    """Per-point statements, in order."""
    loads: tuple[Load, ...]
    """Per-point loads, in order of first declaration."""
    monoid: Monoid | None
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweeps:
    """A region taken apart: hoisted statements between sweeps, and what stays on chip if anything may."""

    rounds: tuple[Sweep, ...]
    post: Sweep | None
    hoisted: tuple[tuple[Line, ...], ...]
    """Kept-level statements that can run after 0, 1, ... rounds."""
    kept_loads: tuple[Load, ...]
    fused: Monoid | None
    resident: tuple[Load, ...]
    """Full-level loads that more than one sweep reads."""
    geometry: Geometry

    @property
    def all(self) -> tuple[Sweep, ...]:
        """Rounds, then the storing sweep if there is one."""
        return (*self.rounds, self.post) if self.post else self.rounds


@lru_cache(maxsize=256)
def take_apart(region: Region) -> Sweeps:
    """The sweeps of a normalised region with at least one round."""
    known = _Known(region)
    rounds = tuple(
        known.sweep(index, [r.operand for r in stage.reductions], product_monoid(
            stage.reductions, known.types, position_ctype(region)))
        for index, stage in enumerate(region.rounds)
    )  # fmt: skip
    full = tuple(store for store in region.stores if store.level in _INNER)
    post = known.sweep(len(rounds), [store.var for store in full], None, full) if full else None
    sweeps = (*rounds, post) if post else rounds
    targets = [reduction.operand for stage in region.rounds for reduction in stage.reductions]
    hoisted = known.hoisted([*targets, *(store.var for store in region.stores)])
    counts = [sum(load in sweep.loads for sweep in sweeps) for load in region.loads]
    return Sweeps(
        rounds=rounds, post=post, hoisted=hoisted,
        kept_loads=tuple(load for load in region.loads if load.level not in _INNER),
        fused=fused_pair(region),
        resident=tuple(load for load, count in zip(region.loads, counts, strict=True)
                       if load.level == "full" and count > 1),
        geometry=geometry(region, tuple(load for load in region.loads if load.level in _INNER), full),
    )  # fmt: skip


class _Known:
    """Definitions by variable, and how far each is from being computable."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.lines = {line.var: line for line in common.all_lines(region)}
        self.loads = {load.var: load for load in region.loads}
        self.types = codegen.value_ctypes(region)
        self.stages: dict[str, int] = {}
        for index, part in enumerate(region.rounds):
            self.stages |= {reduction.var: index + 1 for reduction in part.reductions}

    def stage(self, var: str) -> int:
        """Rounds that must be over before the variable can be computed."""
        if var not in self.stages:
            line = self.lines.get(var)
            self.stages[var] = max((self.stage(used) for used in line.uses), default=0) if line else 0
        return self.stages[var]

    def needed(self, targets: Iterable[str], *, through: bool) -> set[str]:
        """Variables that the targets need; kept-level ones are looked into only if `through`."""
        found: set[str] = set()
        stack = list(targets)
        while stack:
            var = stack.pop()
            line = self.lines.get(var)
            if var in found:
                continue
            found.add(var)
            if line and (through or line.level in _INNER):
                stack.extend(line.uses)
        return found

    def sweep(self, index: int, targets: list[str], monoid: Monoid | None, stores: tuple[Store, ...] = ()) -> Sweep:
        """The per-point statements and loads that the targets need."""
        found = self.needed(targets, through=False)
        lines = tuple(line for var, line in self.lines.items() if var in found and line.level in _INNER)
        loads = tuple(load for load in self.region.loads if load.var in found and load.level in _INNER)
        return Sweep(index, lines, loads, monoid, stores)

    def hoisted(self, targets: list[str]) -> tuple[tuple[Line, ...], ...]:
        """Kept-level statements by the number of rounds they wait for."""
        found = self.needed(targets, through=True)
        groups: list[list[Line]] = [[] for _ in range(len(self.region.rounds) + 1)]
        for var, line in self.lines.items():
            if var in found and line.level not in _INNER:
                groups[self.stage(var)].append(line)
        return tuple(map(tuple, groups))


def names_of(region: Region) -> dict[str, str]:
    """C++ identifier by launch-plan name."""
    return codegen.names_of(codegen.parameters(region.loads, region.stores))


def readings(region: Region, parts: Sweeps, *, keeps: bool) -> tuple[Reading, ...]:
    """Views of all per-point loads; `keeps` says whether residency can spare later reads."""
    names, found = names_of(region), []
    for load in region.loads:
        if load.level not in _INNER or not any(load in sweep.loads for sweep in parts.all):
            continue
        # An operand much smaller than the iteration space is shared by rows, so it should stay in the caches.
        large = load.numel >= region.kept_size * region.reduced_size
        single = large and sum(load in sweep.loads for sweep in parts.all) == 1
        hint = "CACHE_HINT" if single else "hint_default"
        if keeps and load in parts.resident:
            hint = "RESIDENT ? CACHE_HINT : hint_default"
        found.append(reading(load, region, parts.geometry, names, hint))
    return tuple(found)


def writings(region: Region, parts: Sweeps) -> tuple[Writing, ...]:
    """Views of the full-level stores."""
    names, types = names_of(region), codegen.value_ctypes(region)
    stores = parts.post.stores if parts.post else ()
    shape = parts.geometry
    return tuple(writing(store, number, region, shape, names, types) for number, store in enumerate(stores))


def body_slots(parts: Sweeps) -> dict[str, str]:
    """Default text of every code slot: per-point statements of each sweep, statements between sweeps."""
    texts: dict[str, str] = {}
    for sweep in parts.rounds:
        texts[f"body{sweep.index}"] = codegen.render_lines(sweep.lines)
        texts[f"finish{sweep.index}"] = codegen.render_lines(parts.hoisted[sweep.index + 1])
    if parts.post:
        texts["post"] = codegen.render_lines(parts.post.lines)
    return texts


def sweep_context(region: Region, parts: Sweeps, sweep: Sweep, *, keeps: bool) -> dict[str, Any]:
    """Template context of one sweep."""
    views = {view.var: view for view in readings(region, parts, keeps=keeps)}
    loads = [
        {"var": load.var, "ctype": views[load.var].ctype, "mode": _mode(parts, sweep, load, keeps=keeps)}
        for load in sweep.loads
    ]
    stores = writings(region, parts) if sweep.stores else ()
    context: dict[str, Any] = {
        "visit": f"visit{sweep.index}" if sweep.monoid else "finish_point",
        "slot": f"body{sweep.index}" if sweep.monoid else "post",
        "finish_slot": f"finish{sweep.index}",
        "loads": loads,
        "stores": stores,
        "parameters": "".join(f", const {load['ctype']} {load['var']}" for load in loads),
        "arguments": "".join(f", {load['var']}_now[u][j]" for load in loads),
        "edge_arguments": "".join(f", {load['var']}_edge_now" for load in loads),
        "outputs": "".join(f", {store.ctype}& {store.name}" for store in stores),
        "results": "".join(f", {store.name}_now[j]" for store in stores),
        "edge_results": "".join(f", {store.name}_edge" for store in stores),
        "decode": axis_decode(region, any(line.uses_axes for line in sweep.lines)),
    }
    if sweep.monoid:
        context |= partial_context(sweep.monoid, f"Partial{sweep.index}")
        context |= _operand_context(sweep.monoid)
        context["declared"] = _declared(region, parts, sweep)
    return context


def _operand_context(monoid: Monoid) -> dict[str, str]:
    """How the per-point values that go into a partial leave the statements that compute them."""
    named = [(f"operand{number}", var, ctype) for number, (var, ctype) in enumerate(monoid.operands)]
    return {
        "operand_declarations": " ".join(f"{ctype} {name};" for name, _, ctype in named),
        "operand_arguments": "".join(f", {name}" for name, _, _ in named),
        "operand_outputs": "".join(f", {ctype}& {name}" for name, _, ctype in named),
        "operand_assign": "\n".join(f"{name} = {var};" for name, var, _ in named),
    }


def _declared(region: Region, parts: Sweeps, sweep: Sweep) -> str:
    """Declarations of a round's results; a fused first sweep gives the second round's too."""
    types = codegen.value_ctypes(region)
    stages = {0: (0, 1), 1: ()}.get(sweep.index, (sweep.index,)) if parts.fused else (sweep.index,)
    return "\n".join(f"{types[r.var]} {r.var};" for stage in stages for r in region.rounds[stage].reductions)


def axis_decode(region: Region, wanted: bool) -> str:
    """Axis variables of a point, for bodies that name them."""
    return codegen.decode_axes(region.reduced, "position", position_ctype(region)) if wanted else ""


def partial_context(monoid: Monoid, name: str) -> dict[str, Any]:
    """Template context of a partial's struct."""
    return {
        "partial": name,
        "members": monoid.members,
        "operands": ", ".join(f"const {ctype} {var}" for var, ctype in monoid.operands),
        "accumulate": monoid.accumulate,
        "combine": monoid.combine,
        "assign": "\n".join(f"{var} = {text};" for _, var, text in monoid.results),
    }


def _mode(parts: Sweeps, sweep: Sweep, load: Load, *, keeps: bool) -> str:
    if not keeps or load not in parts.resident:
        return "single"
    first = next(other for other in parts.all if load in other.loads)
    return "first" if first is sweep else "later"


@dataclass(frozen=True, slots=True)
class KeptNames:
    """Kept-level variables by when they become known."""

    loads: tuple[str, ...]
    hoisted: tuple[tuple[str, ...], ...]
    """Statements that wait for 0, 1, ... rounds."""
    results: tuple[tuple[str, ...], ...]
    """Reductions of each round."""

    @property
    def setup(self) -> tuple[str, ...]:
        """Known before any round."""
        return (*self.loads, *self.hoisted[0])

    @property
    def all(self) -> tuple[str, ...]:
        """Known after the last round."""
        return self.before(len(self.results))

    def before(self, number: int) -> tuple[str, ...]:
        """Known when round `number` starts."""
        found = list(self.setup)
        for index in range(number):
            found += [*self.results[index], *self.hoisted[index + 1]]
        return tuple(found)


def kept_names(region: Region, parts: Sweeps) -> KeptNames:
    """The kept-level variables of a region."""
    return KeptNames(
        loads=tuple(load.var for load in parts.kept_loads),
        hoisted=tuple(tuple(line.var for line in group) for group in parts.hoisted),
        results=tuple(tuple(reduction.var for reduction in stage.reductions) for stage in region.rounds),
    )


def code_slots(parts: Sweeps) -> tuple[Slot, ...]:
    """The code slots, each with the lowering's text as default."""
    return tuple(_code_slot(name, text) for name, text in body_slots(parts).items())


def _code_slot(name: str, text: str) -> Slot:
    if name.startswith("finish"):
        doc = f"statements once a row, after round {name.removeprefix('finish')}"
        return Slot(name, "reduction", "code", (text,), text, doc)
    when = "after the last round" if name == "post" else f"for round {name.removeprefix('body')}"
    return Slot(name, "compute", "code", (text,), text, f"statements for one element, {when}")


def hoisted_text(region: Region, parts: Sweeps) -> str:
    """Kept-level loads and the statements that need no round, as device code."""
    wide = codegen.index_ctype(region)
    lines = [codegen.load_line(load, names_of(region), wide) for load in parts.kept_loads]
    return "\n".join([*lines, codegen.render_lines(parts.hoisted[0])]).strip()


def row_ctype(region: Region) -> str:
    """C type of row numbers."""
    return "int" if region.kept_size < codegen.NARROW_LIMIT else "long long"


def kept_store_lines(region: Region) -> list[str]:
    """Statements that write the kept-level results of one row."""
    wide = codegen.index_ctype(region)
    return [codegen.store_line(store, names_of(region), wide) for store in region.stores if store.level not in _INNER]


def base_context(region: Region, parts: Sweeps, *, keeps: bool) -> Mapping[str, Any]:
    """What both families tell their templates."""
    return {
        "prelude": codegen.prelude("memory", "reduce", lines=common.all_lines(region)),
        "index": position_ctype(region),
        "row_index": row_ctype(region),
        "size": f"{region.reduced_size}LL",
        "kept": f"{region.kept_size}LL",
        "decode_kept": codegen.decode_axes(region.kept, "row", row_ctype(region)),
        "setup": hoisted_text(region, parts),
        "loads": readings(region, parts, keeps=keeps),
        "stores": writings(region, parts),
        "head": head_text(parts.geometry),
        "alignment": alignment_text((*readings(region, parts, keeps=keeps), *writings(region, parts))),
        "sweeps": [sweep_context(region, parts, sweep, keeps=keeps) for sweep in parts.rounds],
        "post": sweep_context(region, parts, parts.post, keeps=keeps) if parts.post else None,
        "fused": partial_context(parts.fused, "Fused") if parts.fused else None,
        "kept_stores": kept_store_lines(region),
    }
