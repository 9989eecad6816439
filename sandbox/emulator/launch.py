"""One launch of one kernel: batches of blocks through the scheduler, counters and the report of what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.emulator.epochs import Epochs
from warpsmith.sandbox.emulator.global_access import GlobalAccess
from warpsmith.sandbox.emulator.grid import Disorder, Shape, batches
from warpsmith.sandbox.emulator.lanes import CLOCKS, Geometry
from warpsmith.sandbox.emulator.machine import Checks, Dim3, Machine
from warpsmith.sandbox.emulator.program import Kernel
from warpsmith.sandbox.emulator.regions import GlobalMemory, Region
from warpsmith.sandbox.emulator.scheduler import Scheduler
from warpsmith.sandbox.emulator.vectors import Array
from warpsmith.sandbox.emulator.violations import Violation

DEFAULT_STEP_LIMIT = 300_000
"""Executed blocks of code in one batch after which a kernel counts as hanging."""
_MULTIPROCESSORS = 132
_FIRST_PLACE, _STRIDE = 101, 83
"""Blocks are dealt out to so many multiprocessors in turn, neighbours far apart (the stride and their number have no
common divisor): code that asks where it runs finds places all over the device."""
_WORKSPACE = 64
"""Zeroed bytes that the driver gives a cooperative launch for the barrier of its grid (cooperative_groups,
details/driver_abi.h: address in environment registers 1 and 2)."""


@dataclass(slots=True)
class Run:
    """What came of a launch."""

    failure: Failure | None = None
    counters: dict[str, float] = field(default_factory=dict)


def run_kernel(
    kernel: Kernel, shape: Shape, params: Mapping[str, tuple[bytes, int]], regions: list[Region], *,
    addresses: Mapping[str, Array] | None = None, blocks: range | None = None, checks: Checks | None = None,
    step_limit: int = DEFAULT_STEP_LIMIT, poison: int = 0xCB, disorder: Disorder | None = None,
) -> Run:  # fmt: skip
    """Run an entry on memory `regions`; `params` maps each parameter to its bytes and alignment.

    `blocks` restricts the run to a range of linear block indices (whole clusters). The first broken check ends the run.
    With a `disorder`, blocks run in the order that it gives, some long before others; without, in order and in step.
    """
    checks = checks or Checks()
    for region in regions:
        region.forget_blocks()
    barrier = np.zeros(_WORKSPACE, np.uint8)
    if shape.cooperative:
        regions = [*regions, Region("the barrier of the grid", barrier.ctypes.data, barrier.nbytes, tracked=False)]
    epochs = Epochs(kernel.granules["global"]) if checks.races else None
    memory = GlobalAccess(GlobalMemory(regions), epochs, checks.uninitialized, kernel.constant_loads)
    totals = _Totals(kernel)
    run = Run()
    with np.errstate(all="ignore"):
        order = batches(kernel, shape, blocks or range(shape.blocks), disorder)
        # Batches in another order are apart already, unless the one after must wait for the one before.
        within = kernel.spins or len(order) == 1
        for batch in order:
            geometry = Geometry(batch, shape.threads, special_registers(shape, batch, barrier.ctypes.data))
            machine = Machine(
                kernel, geometry, memory, addresses=addresses or {}, params=params,
                dynamic_shared=shape.dynamic_shared, cluster=shape.cluster_size, checks=checks, poison=poison,
            )  # fmt: skip
            if epochs is not None:
                epochs.begin(batch, machine.shared.hazards)
            late = disorder.late(len(batch), shape.cluster_size) if disorder and within else None
            scheduler = Scheduler(kernel, machine, step_limit, late)
            try:
                scheduler.run()
            except Violation as violation:
                run.failure = as_failure(kernel, shape, batch, violation)
            totals.add(scheduler, machine)
            if run.failure is not None:
                break
    run.counters = totals.counters(memory)
    return run


def special_registers(shape: Shape, batch: Array, workspace: int = 0) -> Callable[[str], Array]:
    """A function from special register names to values that broadcast to (blocks, threads). The address `workspace` is
    told to cooperative launches alone."""
    thread = np.arange(shape.threads, dtype=np.uint32).reshape(1, -1)
    block = batch.reshape(-1, 1)
    bx, by, _ = shape.block
    gx, gy, _ = shape.grid
    at = {"x": block % gx, "y": block // gx % gy, "z": block // (gx * gy)}
    inside = {"x": thread % bx, "y": thread // bx % by, "z": thread // (bx * by)}
    clock = [0]

    def constant(value: int) -> Array:
        return np.array([[value]], np.uint32)

    def lookup(name: str) -> Array:
        base, _, axis = name.partition(".")
        place = "xyz".find(axis) if axis else 0
        if base == "tid":
            return _small(inside[axis].astype(np.uint32))
        if base == "ctaid":
            return _small(at[axis].astype(np.uint32))
        if base in ("ntid", "nctaid", "cluster_nctaid", "nclusterid"):
            sizes = {"ntid": shape.block, "nctaid": shape.grid, "cluster_nctaid": shape.cluster}
            if base == "nclusterid":
                return constant(shape.grid[place] // shape.cluster[place])
            return constant(sizes[base][place])
        if base in ("cluster_ctaid", "clusterid"):
            size = shape.cluster[place]
            return _small((at[axis] % size if base == "cluster_ctaid" else at[axis] // size).astype(np.uint32))
        if base == "cluster_ctarank":
            cx, cy, cz = shape.cluster
            return _small((at["x"] % cx + cx * (at["y"] % cy + cy * (at["z"] % cz))).astype(np.uint32))
        if base in CLOCKS:
            clock[0] += 1000
            return constant(clock[0]).astype(np.uint64 if base in ("clock64", "globaltimer") else np.uint32)
        if base == "smid":
            return _small(((_FIRST_PLACE + _STRIDE * block) % _MULTIPROCESSORS).astype(np.uint32))
        return _lane_register(base, thread, shape, workspace)

    return lookup


def _small(value: Array) -> Array:
    """One row or column for a value that does not vary."""
    return value[:1, :1] if (value == value[:1, :1]).all() else value


def _lane_register(name: str, thread: Array, shape: Shape, workspace: int) -> Array:
    """Registers that depend on the lane or on the launch alone. Raises KeyError for an unknown one."""
    lane = thread % np.uint32(32)
    one = np.uint32(1)
    bit = one << lane
    if name in ("envreg1", "envreg2"):
        address = workspace if shape.cooperative else 0
        return np.array([[address >> 32 if name == "envreg1" else address & 0xFFFFFFFF]], np.uint32)
    values = {
        "laneid": lane, "warpid": thread // np.uint32(32), "lanemask_eq": bit, "lanemask_lt": bit - one,
        "lanemask_le": bit | (bit - one), "lanemask_gt": ~(bit | (bit - one)), "lanemask_ge": ~(bit - one),
        "nwarpid": np.array([[-(-shape.threads // 32)]], np.uint32),
        "nsmid": np.array([[_MULTIPROCESSORS]], np.uint32),
        "cluster_nctarank": np.array([[shape.cluster_size]], np.uint32),
        "dynamic_smem_size": np.array([[shape.dynamic_shared]], np.uint32), "gridid": np.zeros((1, 1), np.uint32),
        "is_explicit_cluster": np.array([[shape.cluster_size > 1]]),
    }  # fmt: skip
    return values[name]


class _Totals:
    """Counters of all batches."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.warps_run = [0] * len(kernel.blocks)
        self.other: dict[str, float] = {"divergent_branches": 0, "barriers": 0}

    def add(self, scheduler: Scheduler, machine: Machine) -> None:
        """Take in a batch."""
        self.warps_run = [a + b for a, b in zip(self.warps_run, scheduler.warps_run, strict=True)]
        self.other["divergent_branches"] += scheduler.divergent
        self.other["barriers"] += scheduler.barriers
        for name, value in machine.shared.counts.items():
            self.other[name] = self.other.get(name, 0) + value

    def counters(self, memory: GlobalAccess) -> dict[str, float]:
        """All counters by name; instructions are PTX instructions, one for each warp that issues them."""
        names = ("warp_instructions", "inst_fma", "inst_alu", "inst_sfu", "inst_lsu", "atomics", "branches")
        result: dict[str, float] = dict.fromkeys(names, 0)
        for compiled, warps in zip(self.kernel.blocks, self.warps_run, strict=True):
            for name, cost in compiled.costs.items():
                result[name] += cost * warps
        return {**result, **self.other, **memory.counts}


def as_failure(kernel: Kernel, shape: Shape, batch: Array, violation: Violation) -> Failure:
    """The record of a broken check, naming lines, block and thread."""
    where = ""
    if violation.site >= 0:
        site = kernel.sites[violation.site]
        source = f"source line {site.source_line}, " if site.source_line else ""
        where = f" at {source}PTX line {site.line} ({site.opcode})"
    who = ""
    if violation.row >= 0:
        block, thread = int(batch[violation.row]), violation.thread
        who = f", block {_unravel(block, shape.grid)} thread {_unravel(thread, shape.block)}"
    return Failure(
        stage="launch",
        kind=violation.kind,
        message=f"{kernel.function.name}: {violation.message}{where}{who}",
    )


def _unravel(index: int, dims: Dim3) -> tuple[int, int, int]:
    x, y, _ = dims
    return index % x, index // x % y, index // (x * y)
