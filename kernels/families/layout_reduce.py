"""Owns the layout_reduce family: rows that are reduced, with results that run across them, by way of shared memory."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.column_text import code_slots
from warpsmith.kernels.families.layout_reduce_cost import KERNEL, features_of, least_registers
from warpsmith.kernels.families.layout_reduce_text import reduce_context
from warpsmith.kernels.families.layout_reduce_tile import (
    TurnedRows,
    areas,
    shape_of,
    state_bytes,
    turned_rows,
    widest,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Load, Region, Store
from warpsmith.kernels.slots import Slot, Values

ENUMS = {"residency": "Residency", "staging": "Staging", "store_hint": "Hint"}
MAX_RESIDENT = 64
"""Elements of rows that a thread may hold in registers, over all operands."""
MAX_IN_FLIGHT = 32
"""Elements of one operand that a thread may request before it stores the first."""
MAX_BYTES = 32
"""Of a vector: two accesses."""
RUN = 128
"""Bytes of a result that a block writes side by side, twice that where they begin within sectors: shorter runs leave
sectors to neighbours, and open rows of DRAM for little."""
_HOLDING = ("residency", "points", "block")
"""Slots that decide what a thread holds."""
POINTS = (8, 16, 32, 64, 128)
AGAIN = 1.05
"""By so much a tile that every round reads again must be cheaper to be tried first: it computes again as well, and the
pipes that this keeps busy are those whose load is known worst."""
BLOCKS = (128, 256, 512)


class LayoutReduceFamily:
    """A block keeps a tile of rows; threads side by side reduce rows side by side and write results side by side."""

    name = "layout_reduce"
    doc = (
        "reductions of rows whose results run across the rows (channels last to first): tiles of rows in shared memory"
    )

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, Region):
            return "it is a matrix product"
        if not region.rounds:
            return "it reduces nothing"
        if not region.kept_size * region.reduced_size:
            return "it has no elements"
        if any(store.level == "reduced" for store in region.stores):
            return "it stores values that depend on reduced axes alone"
        if turned_rows(region) is None:
            return "no operand is a row, or no result runs across the rows"
        return None

    def pays(self, region: AnyRegion, device: DeviceModel) -> bool:
        """Whether the smallest tile fits, and results side by side fill a sector."""
        turn = _turn(region)
        inner = turn.region.kept[-1].size * min(map(common.item_bytes, turn.straight_stores))
        return inner >= common.SECTOR and self.check(region, device, _NAIVE) is None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are the smallest tile, one element at a time."""
        turn = _turn(region)
        return (
            Slot("block", "config", "choice", BLOCKS, _NAIVE["block"], "threads a block"),
            Slot("points", "config", "choice", POINTS, _NAIVE["points"],
                 "rows of a tile, and results that a block writes side by side; block / points threads share a row"),
            Slot("residency", "memory", "choice", ("tile", "registers"), "tile",
                 "tile: every round reads shared memory; registers: a thread reads its share of a row once, keeps it"),
            Slot("staging", "memory", "choice", ("registers", "async"), "registers",
                 "how rows reach shared memory: through registers, or past them (cp.async, at least 4 bytes)"),
            Slot("vector", "memory", "choice", _widths(turn), 1, "neighbouring elements of a row in one access"),
            Slot("pad", "memory", "choice", (0, 1), 0, "vectors between rows of a tile, against bank conflicts"),
            Slot("store_hint", "memory", "choice", ("default", "streaming"), "default", "hint of results"),
            Slot("items", "compute", "choice", (1, 4), 1,
                 "vectors a thread requests before it stores the first (staging through registers only)"),
            Slot("unroll", "compute", "choice", (1, 4), 1,
                 "vectors a thread reads of a tile before it uses the first (residency tile only)"),
            Slot("accumulators", "reduction", "choice", (1, 2), 1, "running values a thread keeps of a reduction"),
            *code_slots(turn.region),
        )  # fmt: skip

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Alignment, what a thread holds, registers, shared memory and grid."""
        turn = _turn(region)
        shape, vector, items = shape_of(turn, values), int(values["vector"]), int(values["items"])
        if shape.points > shape.block:
            return Invalid(("points", "block"), "shape", f"{shape.points} points for {shape.block} threads")
        return (
            _check_vectors(turn, values)
            or _check_held(turn, values)
            or (
                Invalid(("items", "vector"), "registers", f"{items * vector} elements, {MAX_IN_FLIGHT} at most")
                if items * vector > MAX_IN_FLIGHT
                else None
            )
            or common.check_registers(device, shape.block, least_registers(turn, values), _HOLDING)
            or _check_static_shared(state_bytes(turn, shape))
            or common.check_shared(
                device, areas(turn, shape) + state_bytes(turn, shape), ("points", "pad", "block")
            )
            or common.check_grid(shape.blocks, ("points",))
        )  # fmt: skip

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The tile of least estimate among those that write long runs, filled past the registers in full vectors."""
        return dict(_sensible(self, _turn(region).region, device))

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        turn = _turn(region)
        text = render(load_template("layout_reduce.cu"), reduce_context(turn))
        built = assemble(text, self.slots(region, device), values, ENUMS)
        shape = shape_of(turn, values)
        step = KernelStep(
            kernel=KERNEL,
            grid=(shape.blocks, 1, 1),
            block=(shape.block, 1, 1),
            shared_bytes=areas(turn, shape),
            args=tuple(parameter.ref for parameter in codegen.parameters(turn.region.loads, turn.region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        return (features_of(_turn(region), device, values),)


_NAIVE: Values = {
    "block": 128, "points": 8, "residency": "tile", "staging": "registers", "vector": 1, "pad": 0,
    "store_hint": "default", "items": 1, "unroll": 1, "accumulators": 1,
}  # fmt: skip


def _turn(region: AnyRegion) -> TurnedRows:
    found = turned_rows(region) if isinstance(region, Region) else None
    if found is None:
        raise TypeError("the layout_reduce family computes reductions of rows whose results run across them")
    return found


def _widths(turn: TurnedRows) -> tuple[int, ...]:
    """Vectors that a row can be walked in: single elements, and the widest."""
    most = max(widest(turn.region, one) for one in turn.staged)
    while most > 1 and most * max(map(common.item_bytes, _in_vectors(turn))) > MAX_BYTES:
        most //= 2
    return (1,) if most == 1 else (1, most)


def _in_vectors(turn: TurnedRows) -> tuple[Load | Store, ...]:
    return (*turn.full, *turn.rows, *turn.turned_stores)


def _check_vectors(turn: TurnedRows, values: Values) -> Invalid | None:
    vector = int(values["vector"])
    if vector > max(widest(turn.region, one) for one in turn.staged):
        return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
    if vector * max(map(common.item_bytes, _in_vectors(turn))) > MAX_BYTES:
        return Invalid(("vector",), "alignment", f"{vector} elements of some operand take more than two accesses")
    if values["staging"] == "async":
        if any(vector * common.item_bytes(load) < 4 for load in turn.staged):
            return Invalid(("staging", "vector"), "alignment", "copies past the registers move 4 bytes at least")
        if int(values["items"]) > 1:
            return Invalid(
                ("items", "staging"), "shape", "all copies past the registers are in flight: items must be 1"
            )
    return None


def _check_held(turn: TurnedRows, values: Values) -> Invalid | None:
    shape = shape_of(turn, values)
    if values["residency"] == "registers":
        held = shape.share * shape.vector * len(turn.full)
        if held > MAX_RESIDENT:
            message = f"{held} elements a thread, {MAX_RESIDENT} at most"
            return Invalid(_HOLDING, "registers", message)
        if int(values["unroll"]) > 1:
            return Invalid(("unroll", "residency"), "shape", "a share held in registers is read at once")
    elif int(values["unroll"]) > shape.share:
        return Invalid(("unroll", "points", "block"), "shape", f"a thread has only {shape.share} vectors")
    if int(values["accumulators"]) > shape.vector:
        message = f"{values['accumulators']} accumulators for {shape.vector} elements at a time"
        return Invalid(("accumulators", "vector"), "shape", message)
    return None


def _check_static_shared(states: int) -> Invalid | None:
    if states <= 48 << 10:
        return None
    return Invalid(("block",), "shared_memory", f"{states} bytes of static shared memory, 49152 at most")


@lru_cache(maxsize=256)
def _sensible(family: LayoutReduceFamily, region: Region, device: DeviceModel) -> Values:
    """Not hashed by slots: the candidates are tiles and blocks; everything else follows from them."""
    turn = _turn(region)
    vector = _widths(turn)[-1]
    found: list[tuple[float, Values]] = []
    long_enough = _run(turn)
    for points, block, residency, pad in product(POINTS, BLOCKS, ("registers", "tile"), (0, 1)):
        base = _NAIVE | {"block": block, "points": points, "residency": residency, "pad": pad, "vector": vector}
        for values in (base | {"staging": "async"}, base | {"items": 4}):
            values["accumulators"] = min(vector, 2)
            values["unroll"] = 4 if residency == "tile" and shape_of(turn, values).share >= 4 else 1
            if family.check(region, device, values) is None:
                us = total_us(breakdown((features_of(turn, device, values),), device))
                us *= max(1.0, (long_enough / points) ** 0.25) * (AGAIN if residency == "tile" else 1.0)
                found.append((us, values))
                break
    values = min(found, key=lambda one: one[0])[1] if found else dict(_NAIVE)
    values["store_hint"] = "streaming" if region.floor_bytes > device.l2_bytes else "default"
    return values


def _run(turn: TurnedRows) -> int:
    """Points with which runs of results are long enough."""
    inner = turn.region.kept[-1]
    store = max(turn.straight_stores, key=lambda one: one.numel)
    size = common.item_bytes(store)
    begins = common.divisible(store.address, inner.name, common.SECTOR // size)
    return min((RUN if begins else 2 * RUN) // size, max(8, inner.size))
