"""Owns the column family: reductions along axes that are not innermost in memory."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.column_layout import (
    inner_axis,
    loads_of,
    ordered,
    packable,
    passes,
    scratch_bytes,
)
from warpsmith.kernels.families.column_text import KERNEL, code_slots, column_context
from warpsmith.kernels.families.common import SECTOR
from warpsmith.kernels.families.row_monoid import fused_pair
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Load, Region
from warpsmith.kernels.slots import Slot, Values

ENUMS = {"residency": "Residency", "accumulators": "Accumulators", "passes": "Passes"}
MAX_RESIDENT = 128
"""Reduced elements a thread may hold in registers, over all its results and operands."""
MAX_IN_FLIGHT = 32
"""Elements of one operand that a thread may request before it uses the first."""
MOST_STATES = 8
"""Running states of one sweep for several rounds, each a thread's own."""
DEPTH = 4
"""Reads a thread has in flight at first: deeper walks open more rows of DRAM at a time and gain nothing."""
DRIFT = 8
"""Rounds of reads by which neighbouring blocks drift apart. Measured: runs of 64 unaligned bytes cost 22 % with 4 reads
a thread in flight, 80 % with 16."""
STATIC_SHARED = 48 * 1024


class ColumnFamily:
    """A thread owns `vector` neighbouring results; `split` threads share the walk along the reduced axes."""

    name = "column"
    doc = "reductions whose axis is not innermost in memory: neighbouring threads read neighbouring addresses"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, Region):
            return "it is a matrix product"
        if not region.rounds:
            return "it reduces nothing"
        if not region.kept_size * region.reduced_size:
            return "it has no elements"
        if not region.kept:
            return "it keeps no axis"
        if any(store.level == "reduced" for store in region.stores):
            return "it stores values that depend on reduced axes alone"
        if not loads_of(region).full:
            return "it reads nothing that depends on kept and reduced axes"
        if inner_axis(common.normalised(region)) is None:
            return "its kept axes are not contiguous in memory"
        return None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one result a thread, one element at a time."""
        region = _column(region)
        return (
            Slot("block", "config", "choice", (128, 256, 512), 128, "threads a block"),
            Slot("vector", "memory", "choice", (1, 2, 4), 1, "neighbouring results a thread owns"),
            Slot("residency", "memory", "choice", ("stream", "registers"), "stream",
                 "stream: every round reads again; registers: a thread reads its share once and keeps it"),
            Slot("unroll", "compute", "choice", (1, 2, 4, 8, 16), 1,
                 "reduced elements a thread requests before it uses the first (streaming only)"),
            Slot("split", "reduction", "choice", (1, 2, 4, 8, 16), 1,
                 "threads of a block that share a result, joined by a tree in shared memory"),
            Slot("accumulators", "reduction", "choice", ("one", "unrolled"), "one",
                 "one running value a result, or as many as `unroll`, joined at the end"),
            *([Slot("passes", "reduction", "choice", ("rounds", "online"), "rounds",
                    "rounds: one sweep a round; online: the first two rounds in one sweep (streaming only)")]
              if fused_pair(region) else []),
            *code_slots(region),
        )  # fmt: skip

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Alignment, work for every thread of a split, registers, shared memory and grid."""
        region = _column(region)
        block, vector, split = int(values["block"]), int(values["vector"]), int(values["split"])
        share, unroll = -(-region.reduced_size // split), int(values["unroll"])
        if vector > 1 and not any(packable(region, access, vector) for access in loads_of(region).full):
            return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
        if split > region.reduced_size:
            return Invalid(("split",), "shape", f"{region.reduced_size} elements for {split} threads")
        if values["residency"] == "registers":
            held = share * vector * len(loads_of(region).full)
            if held > MAX_RESIDENT:
                message = f"{held} elements a thread, {MAX_RESIDENT} at most"
                return Invalid(("residency", "split", "vector"), "registers", message)
            if unroll != 1:
                return Invalid(("unroll", "residency"), "shape", "a share held in registers is read at once")
        elif unroll > share:
            return Invalid(("unroll", "split"), "shape", f"a thread has only {share} elements")
        elif unroll * vector > MAX_IN_FLIGHT:
            message = f"{unroll * vector} elements in flight, {MAX_IN_FLIGHT} at most"
            return Invalid(("unroll", "vector"), "registers", message)
        if _online(values) and values["accumulators"] == "unrolled" and unroll > MOST_STATES:
            # NVRTC 13 spills some of them, whatever registers there are.
            message = f"{unroll} running states of several words, {MOST_STATES} at most"
            return Invalid(("unroll", "accumulators", "passes"), "registers", message)
        if _online(values) and values["residency"] == "registers":
            message = "rounds over registers cost no memory access: nothing to fuse"
            return Invalid(("passes", "residency"), "shape", message)
        if values["accumulators"] == "unrolled" and unroll == 1:
            return Invalid(("accumulators", "unroll"), "shape", "one element at a time: one running value")
        return (
            common.check_threads(block, ("block",))
            or common.check_registers(device, block, self._registers(region, values), ("vector", "unroll", "block"))
            or self._check_static_shared(self._shared(region, values))
            or common.check_grid(self._blocks(region, values), ("block", "vector"))
        )

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Enough threads for the device, then width and depth; registers where a second pass re-reads."""
        region = _column(region)
        fill, full = device.sms * device.threads_per_sm, loads_of(region).full
        vector = max(width for width in (1, 2, 4) if width == 1 or any(packable(region, a, width) for a in full))
        while vector > 1 and region.kept_size < fill * vector:
            vector //= 2
        split = 1
        while split < 16 and region.kept_size // vector * split < fill and region.reduced_size >= split * 16:
            split *= 2
        if split == 1 and region.reduced_size >= 2 * DEPTH:
            # More reads in flight over the same neighbours: on an H200, sums of 4096 ran 5 % faster with 4 than with 2.
            split = 4 if region.reduced_size >= 64 * DEPTH else 2
        values: Values = {"block": 256 * min(split, 2), "vector": vector, "split": split, "residency": "stream",
                          "unroll": 1, "accumulators": "one"}  # fmt: skip
        if passes(region) > 1:
            for width in (vector, vector // 2, 1):
                held = values | {"residency": "registers", "vector": max(1, width)}
                elements = -(-region.reduced_size // split) * max(1, width) * len(full)
                if elements <= 64 and self.check(region, device, held) is None:
                    return held
        if fused_pair(region) and self._again(region, device, values):
            values["passes"] = "online"
        for unroll in (DEPTH, 2):
            deep = values | {"unroll": unroll, "accumulators": "unrolled"}
            if unroll > 1 and self.check(region, device, deep) is None:
                return deep
        return values

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _column(region)
        text = render(load_template("row_sweep.cu") + load_template("column.cu"), column_context(region))
        built = assemble(text, self.slots(region, device), values, ENUMS)
        step = KernelStep(
            kernel=KERNEL,
            grid=(self._blocks(region, values), 1, 1),
            block=(int(values["block"]), 1, 1),
            args=tuple(parameter.ref for parameter in codegen.parameters(region.loads, region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _column(region)
        block, vector, split = int(values["block"]), int(values["vector"]), int(values["split"])
        points, full = region.kept_size * region.reduced_size, loads_of(region).full
        resident = values["residency"] == "registers"
        sweeps = 1 if resident else passes(region, online=_online(values))
        swept = sum(points * common.item_bytes(load) for load in full)
        registers = self._registers(region, values)
        again = sweeps - 1 if self._again(region, device, values) else 0
        lines = common.all_lines(region)
        special = common.special_ops(line for stage in region.rounds for line in stage.lines)
        special += common.special_ops(region.post)
        busy = common.instructions(line for stage in region.rounds for line in stage.lines)
        busy += common.instructions(region.post)
        fused = fused_pair(region) if _online(values) else None
        if fused is not None:
            special += fused.special_ops - common.special_ops(region.rounds[1].lines)
            busy += fused.flops + 12 * fused.special_ops - common.instructions(region.rounds[1].lines)
        batch = -(-region.reduced_size // split) if resident else int(values["unroll"])
        in_flight = batch * vector * sum(common.item_bytes(load) for load in full)
        extra = sum(self._overfetched(region, load, values) for load in full)
        apart = self._apart(region, device, values, registers, in_flight)
        moves = sweeps * len(full) + sum(store.level == "full" for store in region.stores)
        reductions = sum(len(stage.reductions) for stage in region.rounds)
        return (
            LaunchFeatures(
                kernel=KERNEL,
                blocks=self._blocks(region, values),
                threads=block,
                registers=registers,
                shared_bytes=self._shared(region, values),
                dram_read=common.bytes_read(region) + again * swept + int(apart * extra),
                dram_written=common.bytes_written(region) + _scattered(region),
                l2_read=sweeps * (swept + extra),
                shared_traffic=3 * region.kept_size * split * 8 * reductions if split > 1 else 0,
                flops=(sum(line.flops for line in lines) + reductions) * points,
                special_ops=special * points,
                instructions=points * (4 * moves // vector + 2 * reductions + busy),
                bytes_in_flight=in_flight,
                sweeps=sweeps,
                barriers=reductions * (split.bit_length() + 1) if split > 1 else 0,
            ),
        )

    def _overfetched(self, region: Region, load: Load, values: Values) -> int:
        """Bytes of sectors that neighbouring blocks fetch too, over one sweep."""
        size, address = common.item_bytes(load), common.address_of(load)
        run = int(values["block"]) // int(values["split"]) * int(values["vector"]) * size
        outer = (address.stride(axis.name) for axis in (*region.kept[:-1], *region.reduced))
        aligned = run % SECTOR == 0 and all(stride is not None and stride * size % SECTOR == 0 for stride in outer)
        runs = region.kept_size * region.reduced_size * size // run
        return 0 if aligned else runs * (SECTOR - size)

    def _apart(self, region: Region, device: DeviceModel, values: Values, registers: int, in_flight: int) -> float:
        """Share of common sectors that have left L2 before the neighbour asks for them."""
        block = int(values["block"])
        resident = device.sms * common.resident_blocks(device, block, registers, self._shared(region, values))
        together = min(resident, self._blocks(region, values)) * block * in_flight
        return min(1.0, DRIFT * together / device.l2_bytes)

    def _again(self, region: Region, device: DeviceModel, values: Values) -> bool:
        """Whether a later sweep finds no more in L2 what the first one read."""
        return self._window(region, device, values, self._registers(region, values)) >= device.l2_bytes

    def _window(self, region: Region, device: DeviceModel, values: Values, registers: int) -> int:
        """Bytes between a read and its repetition, over all blocks that run at once."""
        block = int(values["block"])
        blocks = device.sms * common.resident_blocks(device, block, registers, self._shared(region, values))
        columns = block // int(values["split"]) * int(values["vector"])
        one = columns * region.reduced_size * sum(common.item_bytes(load) for load in loads_of(region).full)
        return min(blocks, self._blocks(region, values)) * one

    def _registers(self, region: Region, values: Values) -> int:
        vector, split, full = int(values["vector"]), int(values["split"]), loads_of(region).full
        resident = values["residency"] == "registers"
        batch = -(-region.reduced_size // split) if resident else int(values["unroll"])
        words = sum(max(1, common.item_bytes(load) // 4) for load in full)
        chains = int(values["unroll"]) if values["accumulators"] == "unrolled" else 1
        fused = fused_pair(region) if _online(values) else None
        rounds = [sum(max(1, codegen.state_bytes(r) // 4) for r in stage.reductions) for stage in region.rounds]
        states = fused.bytes // 4 if fused else max(rounds)
        results = sum(len(stage.reductions) + len(stage.finish) for stage in region.rounds)
        held = (batch * words, chains * states)
        # In one sweep every value of a batch changes its chain's state while the others wait for theirs.
        return 16 + vector * ((sum(held) if fused else max(held)) + results)

    def _shared(self, region: Region, values: Values) -> int:
        if int(values["split"]) == 1:
            return 0
        return int(values["block"]) * int(values["vector"]) * scratch_bytes(region)

    def _check_static_shared(self, shared_bytes: int) -> Invalid | None:
        if shared_bytes <= STATIC_SHARED:
            return None
        message = f"{shared_bytes} bytes of static shared memory, {STATIC_SHARED} at most"
        return Invalid(("block", "vector", "split"), "shared_memory", message)

    def _blocks(self, region: Region, values: Values) -> int:
        lanes = int(values["block"]) // int(values["split"])
        return -(-region.kept_size // (lanes * int(values["vector"])))


def _column(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the column family computes regions, not matrix products")
    return ordered(region)


def _online(values: Values) -> bool:
    return values.get("passes") == "online"


def _scattered(region: Region) -> int:
    """Bytes that are written beyond the results, where neighbouring columns do not lie side by side: a sector for each
    element (an instance norm from channels last to channels first took 5.5 ms on an H200 where 1 GB is 0.25 ms)."""
    points = region.kept_size * region.reduced_size
    apart = [
        store for store in region.stores if store.level == "full" and store.address.stride(region.kept[-1].name) != 1
    ]
    return sum(points * (SECTOR - common.item_bytes(store)) for store in apart)
