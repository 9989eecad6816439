"""A template candidate at other sizes: the same slot values and the same edits, for the region of a shape variant."""

from __future__ import annotations

import re

from warpsmith.kernels.composite import AnyRegion, Composite
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.rewritten import RewrittenFamily
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.compose import recomposed
from warpsmith.kernels.partition.sums import as_sums
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.region import MatmulRegion
from warpsmith.kernels.rewrites.registry import rewritten
from warpsmith.kernels.slots import Values

_NUMBER = re.compile(r"(?<![\w.])(?P<value>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<suffix>[fFuUlL]*)(?![\w.])")


def is_of(spec: KernelSpec, candidate: Candidate) -> bool:
    """Whether a candidate is what its slot values say, in this search space."""
    if candidate.family != spec.family.name or spec.check(candidate.values) is not None:
        return False
    made = spec.emit(candidate.values)
    return (made.id, made.precision_class) == (candidate.id, candidate.precision_class)


def edited_slots(spec: KernelSpec, candidate: Candidate) -> list[str]:
    """Code slots whose text is not the lowering's own."""
    code = [slot for slot in spec.slots if slot.kind == "code"]
    return [slot.name for slot in code if candidate.values.get(slot.name, slot.default) != slot.default]


def carried(spec: KernelSpec, candidate: Candidate, graph: OpGraph) -> Candidate | str:
    """The candidate for the same computation at other sizes, or why there is none: it is no region or not cut alike
    there, the family cannot compute it, its slots differ, the combination is not valid, or an edit cannot be carried
    over. Rewrites are applied again."""
    there = spec_at(spec, graph)
    return there if isinstance(there, str) else carried_to(spec, candidate, there)


def spec_at(spec: KernelSpec, graph: OpGraph) -> KernelSpec | str:
    """The search space of the same computation at other sizes, whatever the candidate, or why there is none."""
    try:
        region = _region_at(spec, graph)
    except NotYetError as error:
        return str(error)
    reason = spec.family.refuse(region)
    return reason if reason is not None else spec_for(spec.family, region, spec.device)


def carried_to(spec: KernelSpec, candidate: Candidate, there: KernelSpec) -> Candidate | str:
    """As `carried`, into a search space that is there."""
    before, after = _code(spec), _code(there)
    if before.keys() != after.keys():
        return "its region has other code slots"
    values: Values = {name: value for name, value in candidate.values.items() if name not in before}
    for name, default in before.items():
        text = str(candidate.values.get(name, default))
        moved = after[name] if text == default else _moved(text, default, after[name])
        if moved is None:
            return f"the edit of {name} stands for sizes that are written into its default text"
        values[name] = moved
    full = there.naive | values
    invalid = there.family.check(there.region, there.device, full)
    return invalid.message if invalid is not None else there.family.emit(there.region, there.device, full)


def _region_at(spec: KernelSpec, graph: OpGraph) -> AnyRegion:
    if isinstance(spec.family, RewrittenFamily):
        graph = rewritten(graph, spec.family.rewrites)
    if isinstance(spec.region, Composite):
        return _recomposed(spec, spec.region, graph)
    # A product with a vector may have been planned as sums; at another size it is a product with a matrix.
    sums = None if isinstance(spec.region, MatmulRegion) else as_sums(graph, every=True)
    return lower(graph if sums is None else sums)


def _recomposed(spec: KernelSpec, like: Composite, graph: OpGraph) -> Composite:
    """The same parts, from the graph or from the one whose products are sums."""
    try:
        found = recomposed(graph, spec.device, like)
        if spec.family.refuse(found) is None:
            return found
    except NotYetError:
        if as_sums(graph, every=True) is None:
            raise
    return recomposed(as_sums(graph, every=True) or graph, spec.device, like)


def _code(spec: KernelSpec) -> dict[str, str]:
    return {slot.name: str(slot.default) for slot in spec.slots if slot.kind == "code"}


def _moved(text: str, before: str, after: str) -> str | None:
    """An edited text, with the sizes that its default text holds (the count of a mean) replaced by those of the other
    region. None where the default texts differ in more than numbers, or the edit holds a size in another form."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return None
    numbers: dict[float, set[float]] = {}
    for old, new in zip(_NUMBER.finditer(before), _NUMBER.finditer(after), strict=True):
        numbers.setdefault(float(old["value"]), set()).add(float(new["value"]))
    changed = {old: found for old, found in numbers.items() if found != {old}}
    if any(len(found) > 1 for found in changed.values()):
        return None
    sizes = {old: found.pop() for old, found in changed.items()}
    used: set[float] = set()

    def put(match: re.Match[str]) -> str:
        value = float(match["value"])
        for old, new in sizes.items():
            if value == old:
                used.add(old)
                return _written(new, match)
            if old and abs(value * old - 1.0) < 1e-6:
                used.add(old)
                return _written(1.0 / new, match)
        return match[0]

    moved = _NUMBER.sub(put, text)
    return moved if used == sizes.keys() else None


def _written(value: float, like: re.Match[str]) -> str:
    """A number in the style of another: whole numbers stay whole."""
    whole = like["value"].isdigit() and value.is_integer()
    return f"{int(value) if whole else repr(value)}{like['suffix']}"
