"""What a kernel family is, and a KernelSpec: one region that one family will compute on one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.hashed import ByObject, HashKept, hash_kept
from warpsmith.kernels.records import Candidate, CompileReport
from warpsmith.kernels.slots import Slot, Values


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a combination of slot values cannot run: the slots at fault, a short kind and a sentence."""

    slots: tuple[str, ...]
    kind: str
    """`threads | registers | shared_memory | alignment | cluster | grid | indexing | shape`."""
    message: str


@hash_kept
@dataclass(frozen=True, slots=True)
class LaunchFeatures(HashKept):
    """What the cost model needs to know of one launch; all counts are totals of the launch."""

    kernel: str
    blocks: int
    threads: int
    """Per block."""
    registers: int
    """Per thread; estimated before compilation, taken from ptxas after it."""
    shared_bytes: int
    """Per block, static plus dynamic."""
    dram_read: int
    dram_written: int
    l2_read: int
    """Bytes requested from L2 (re-reads included, sector overfetch included)."""
    shared_traffic: int
    """Bytes through shared memory."""
    flops: int
    special_ops: int
    """exp, log, rsqrt, division, ..."""
    instructions: int
    """Estimated thread instructions, for issue-bound kernels."""
    bytes_in_flight: int
    """Per thread: independent loads before first use times their width."""
    barriers: int
    """Per block."""
    sweeps: int = 1
    """Walks over the data behind one another, each of which a block finishes before the next."""
    cluster: int = 1
    """Blocks that start together and wait for each other."""
    spilled_bytes: int = 0
    """Per thread: registers stored to and loaded from local memory."""
    independent: int = 1
    """Instructions of a thread that typically do not wait for each other."""
    host_us: float = 0.0
    """Microseconds that the host takes to enqueue the launch; 0 where the launch is alone in its plan."""
    round_trips: int = 0
    """Per block: trips to L2 and back, one behind the other, in which it waits for what other blocks publish."""
    turns: int = 1
    """Times that a thread goes through all of the kernel's sweeps, and meets its spilled registers again."""
    in_step: int = 1
    """Blocks of one SM that wait for the same others, so that none moves anything while they do."""
    ahead: int = 0
    """Turns of a block that are on their way by asynchronous copies while it works on an earlier one: its own waits and
    instructions then hold up no read."""


class Family(Protocol):
    """A way of computing regions. One Python file plus one device-code template each."""

    name: str
    doc: str

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots for this region; defaults are the naive kernel."""

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """The family's one validity rule, used by every policy: None if the combination can run."""

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The prior: what an experienced author would try first for this shape on this device."""

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs, one a launch."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One region, one family, one device: the search space that roles and policies see."""

    family: Family
    region: AnyRegion
    device: DeviceModel
    slots: tuple[Slot, ...]

    @property
    def choice_slots(self) -> tuple[Slot, ...]:
        """The slots with a finite set of values."""
        return tuple(slot for slot in self.slots if slot.kind == "choice")

    @property
    def naive(self) -> Values:
        """Default values of all slots: the kernel nobody has tuned."""
        return {slot.name: slot.default for slot in self.slots}

    def sensible(self) -> Values:
        """Naive values overlaid with the family's prior."""
        return self.naive | self.family.sensible(self.region, self.device)

    def check(self, values: Values) -> Invalid | None:
        """Unknown names and illegal values first, then the family's rule."""
        known, naive = _TOLD.of(self.slots)
        for name, value in values.items():
            if name not in known:
                return Invalid((name,), "shape", f"no slot named {name!r} in family {self.family.name}")
            if known[name].kind == "choice" and value not in known[name].values:
                legal = ", ".join(map(str, known[name].values))
                return Invalid((name,), "shape", f"{name}={value!r} is not one of {legal}")
        return self.family.check(self.region, self.device, naive | values)

    def emit(self, values: Values, parent: str | None = None) -> Candidate:
        """Assemble a candidate; values that are left out take their defaults."""
        candidate = self.family.emit(self.region, self.device, self.naive | values)
        return candidate.model_copy(update={"parent": parent})

    def features(self, values: Values, report: CompileReport | None = None) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs; with a compile report, its true register and shared-memory counts are used."""
        from dataclasses import replace

        found = self.family.features(self.region, self.device, self.naive | values)
        if report is None or not report.resources:
            return found
        return tuple(
            replace(f, registers=report.resources[f.kernel].registers) if f.kernel in report.resources else f
            for f in found
        )


def _told(slots: tuple[Slot, ...]) -> tuple[dict[str, Slot], Values]:
    return {slot.name: slot for slot in slots}, {slot.name: slot.default for slot in slots}


_TOLD = ByObject(_told)
"""Slots and default values by name: a search asks for them with every combination that it thinks of."""


def spec_for(family: Family, region: AnyRegion, device: DeviceModel) -> KernelSpec:
    """A KernelSpec with the family's slots for this region."""
    return KernelSpec(family=family, region=region, device=device, slots=family.slots(region, device))
