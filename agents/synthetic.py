"""A deterministic stand-in for kernel families: a small landscape with interactions and invalid corners.

It lets policies and the graph be run without a lowering, a compiler or a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.family import Invalid, KernelSpec, LaunchFeatures, spec_for
from warpsmith.kernels.indexing import Expr, Term
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Axis, Region, Store
from warpsmith.kernels.slots import Slot, Values

SLOTS = (
    Slot("block", "config", "choice", (32, 64, 128, 256, 512, 1024), 32, "threads per block"),
    Slot("items", "config", "choice", (1, 2, 4, 8), 1, "elements per thread"),
    Slot("vector", "memory", "choice", (1, 2, 4), 1, "elements per load"),
    Slot("residency", "memory", "choice", ("none", "registers", "shared"), "none", "where a row waits"),
    Slot("unroll", "compute", "choice", (1, 2, 4, 8), 1, "loop unrolling"),
    Slot("fast_math", "compute", "choice", (False, True), False, "approximate functions"),
    Slot("scheme", "reduction", "choice", ("tree", "shuffle", "atomics"), "tree", "how partial results meet"),
)


@dataclass
class SyntheticFamily:
    """Cost has one optimum that no role finds alone: the best vector width depends on the block, the best
    unrolling
    on the residency, the best scheme on both."""

    name: str = "synthetic"
    doc: str = "a formula in place of a kernel"

    def refuse(self, region: AnyRegion) -> str | None:
        """It accepts everything."""
        return None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """Seven slots of four roles."""
        return SLOTS

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Too large a tile, and shared memory beyond the block's."""
        tile = int(values["block"]) * int(values["items"]) * int(values["vector"])
        if tile > 8192:
            return Invalid(("block", "items", "vector"), "shape", f"a tile of {tile} elements is over 8192")
        if values["residency"] == "shared" and tile * int(values["unroll"]) > 16384:
            return Invalid(("residency", "unroll"), "shared_memory", "the staged tiles do not fit")
        return None

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """A plausible start, not the optimum."""
        return {"block": 256, "vector": 2, "scheme": "shuffle"}

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """The values as text; nothing that compiles to work."""
        lines = [f"// {name} = {values[name]}" for name in sorted(values)]
        source = "\n".join([f"// {self.name}", *lines, 'extern "C" __global__ void nothing() {}'])
        step = KernelStep(kernel="nothing", grid=(1, 1, 1), block=(int(values["block"]), 1, 1), args=())
        return Candidate(source=source, plan=LaunchPlan(steps=(step,)), family=self.name, values=values)

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """A copy of 16 MB with the registers that `registers` predicts."""
        block, vector = int(values["block"]), int(values["vector"])
        threads = 1 << 22
        return (
            LaunchFeatures(
                kernel="nothing",
                blocks=threads // (block * vector),
                threads=block,
                registers=registers(values),
                shared_bytes=block * 4 if values["scheme"] == "tree" else 0,
                dram_read=1 << 24,
                dram_written=1 << 24,
                l2_read=1 << 24,
                shared_traffic=0,
                flops=threads,
                special_ops=0,
                instructions=threads * 8 // vector,
                bytes_in_flight=4 * vector * int(values["items"]),
                barriers=1,
            ),
        )


def registers(values: Values) -> int:
    """Registers a thread would need."""
    held = int(values["items"]) * int(values["vector"]) if values["residency"] == "registers" else int(values["vector"])
    return 16 + 4 * held * int(values["unroll"])


def landscape_us(values: Values) -> float:
    """Microseconds of the synthetic kernel; the optimum is 10."""
    block, items, vector = (math.log2(int(values[name])) for name in ("block", "items", "vector"))
    unroll = math.log2(int(values["unroll"]))
    cost = 1.0 + 0.12 * (block + vector - 9.0) ** 2 + 0.1 * (vector - 2.0) ** 2
    wanted = {"none": 1.0, "registers": 2.0, "shared": 3.0}[str(values["residency"])]
    cost += 0.15 * (unroll - wanted) ** 2 + {"none": 0.5, "registers": 0.0, "shared": 0.25}[str(values["residency"])]
    cost += 0.1 * (items - 1.0) ** 2 + (0.0 if values["fast_math"] else 0.1)
    best_scheme = "shuffle" if values["residency"] == "registers" else "tree"
    cost += {best_scheme: 0.0, "atomics": 0.6}.get(str(values["scheme"]), 0.3)
    return 10.0 * cost


def synthetic_spec(name: str = "synthetic") -> KernelSpec:
    """A KernelSpec of the synthetic family for a one-dimensional region."""
    region = Region(
        kept=(Axis("k0", 1 << 22),),
        reduced=(),
        loads=(),
        rounds=(),
        post=(),
        stores=(Store("x", "out0", "float32", Expr((Term("k0", 1),)), "full", 1 << 22),),
        flops=1 << 22,
        floor_bytes=1 << 25,
    )
    return spec_for(SyntheticFamily(name), region, model_for("sm_90"))


def synthetic_cost(candidate: Candidate) -> float:
    """`landscape_us` of a candidate's values; families whose name ends in a digit are slower by that many
    tenths."""
    last = candidate.family[-1]
    return landscape_us(candidate.values) * (1.0 + 0.1 * int(last) if last.isdigit() else 1.0)


def _always(values: Values) -> bool:
    return True


def _unknown(values: Values) -> float | None:
    return None


def _no_demand(values: Values) -> dict[str, float]:
    return {}


@dataclass(frozen=True, eq=False)
class FormulaSpace:
    """A search space from slots and functions; without `roles` each slot is its own role."""

    choice_slots: tuple[Slot, ...]
    prior: Values
    allows: Callable[[Values], bool] = _always
    model: Callable[[Values], float | None] = _unknown
    needs: Callable[[Values], Mapping[str, float]] = _no_demand
    roles: bool = False
    name: str = "formula"
    code_slots: tuple[Slot, ...] = ()

    @property
    def naive(self) -> Values:
        """Default values."""
        return {slot.name: slot.default for slot in self.choice_slots}

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Slots by owner, or each by itself."""
        if not self.roles:
            return {slot.name: (slot.name,) for slot in self.choice_slots}
        owners = dict.fromkeys(slot.owner for slot in self.choice_slots)
        return {owner: tuple(s.name for s in self.choice_slots if s.owner == owner) for owner in owners}

    def check(self, values: Values) -> Invalid | None:
        """The rule it was given."""
        return None if self.allows(values) else Invalid((), "shape", "the rule forbids it")

    def sensible(self) -> Values:
        """The prior it was given, over the naive values."""
        return self.naive | self.prior

    def estimate(self, values: Values) -> float | None:
        """The model it was given."""
        return self.model(values)

    def demand(self, values: Values) -> Mapping[str, float]:
        """The needs it was given."""
        return self.needs(values)
