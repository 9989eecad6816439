"""The one table of counters: names, units, whose concern each is, and how every source gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels.records import Counters
from warpsmith.kernels.slots import Role

Source = Literal["ncu", "emulated", "static"]
Raw = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Formula:
    """`offset + scale * sum(over) / sum(under)` of one source's own names; without `under` it is a sum."""

    over: tuple[str, ...]
    under: tuple[str, ...] = ()
    scale: float = 1.0
    offset: float = 0.0

    def value(self, raw: Raw) -> float | None:
        """None where the source lacks a name or there is nothing to divide by."""
        if any(name not in raw for name in (*self.over, *self.under)):
            return None
        total = sum(raw[name] for name in self.over)
        if self.under:
            share = sum(raw[name] for name in self.under)
            if share == 0:
                return None
            total /= share
        return self.offset + self.scale * total

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the source that it needs."""
        return (*self.over, *self.under)

    @property
    def text(self) -> str:
        """The same for a reader."""
        text = " + ".join(self.over)
        if self.under:
            below = " + ".join(self.under)
            text = f"({text})" if len(self.over) > 1 else text
            text += f" / ({below})" if len(self.under) > 1 else f" / {below}"
        if self.scale != 1.0:
            text = f"{self.scale:g} * {text}"
        return text if self.offset == 0.0 else f"{self.offset:g} + {text}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One counter of a kernel. `better`: which way is good, where one way is; the worst kernel of a plan is shown."""

    name: str
    unit: str
    roles: tuple[Role, ...]
    meaning: str
    better: Literal["more", "less"] | None = None
    ncu: Formula | None = None
    emulated: Formula | None = None
    static: Formula | None = None

    def formula(self, source: Source) -> Formula | None:
        """How `source` gives it."""
        return {"ncu": self.ncu, "emulated": self.emulated, "static": self.static}[source]


def _f(*over: str, under: tuple[str, ...] = (), scale: float = 1.0, offset: float = 0.0) -> Formula:
    return Formula(over, under, scale, offset)


_TIME = "gpu__time_duration.sum"
_DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_WAVES = tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
_CONFLICTS = tuple(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st"))
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_ISSUED = ("smsp__inst_executed.sum",)

METRICS: tuple[Metric, ...] = (
    Metric(
        "launches", "", ("planner",), "Launches of the kernel in one run of the plan", "less",
        ncu=_f("launches"), static=_f("launches"),
    ),
    Metric("device_time", "µs", ("planner",), "Time on the device, caches flushed, clocks floating", "less",
           ncu=_f(_TIME, scale=1e-3)),
    Metric("dram_bytes", "B", ("planner", "memory"), "Bytes read from and written to device memory", "less",
           ncu=_f(*_DRAM)),
    Metric(
        "occupancy", "%", ("config",), "Warps an SM can hold at once, of the most it could", "more",
        ncu=_f("sm__maximum_warps_per_active_cycle_pct"), static=_f("occupancy_pct"),
    ),
    Metric("warps_active", "%", ("config",), "Warps that were resident on average, of the most an SM could hold",
           "more", ncu=_f("sm__warps_active.avg.pct_of_peak_sustained_active")),
    Metric(
        "waves", "", ("config",), "How often the grid fills the device",
        ncu=_f("launch__waves_per_multiprocessor"), static=_f("waves"),
    ),
    Metric(
        "registers", "a thread", ("config",), "Registers", "less",
        ncu=_f("launch__registers_per_thread"), static=_f("registers"),
    ),
    Metric(
        "block_threads", "", ("config",), "Threads of a block",
        ncu=_f("launch__block_size"), static=_f("block_threads"),
    ),
    Metric(
        "limit_registers", "blocks", ("config",), "Blocks an SM could hold if registers alone limited it", "more",
        ncu=_f("launch__occupancy_limit_registers"), static=_f("limit_registers"),
    ),
    Metric(
        "limit_shared", "blocks", ("config",), "Blocks an SM could hold if shared memory alone limited it", "more",
        ncu=_f("launch__occupancy_limit_shared_mem"), static=_f("limit_shared"),
    ),
    Metric(
        "load_sectors_per_request", "", ("memory",),
        "32-byte sectors a warp's global load touches: 4 is coalesced for 4-byte accesses, 16 for 16-byte ones", "less",
        ncu=_f(_L1.format("sectors", "ld"), under=(_L1.format("requests", "ld"),)),
        emulated=_f("global_load_sectors", under=("global_load_requests",)),
    ),
    Metric(
        "store_sectors_per_request", "", ("memory",), "The same of a global store", "less",
        ncu=_f(_L1.format("sectors", "st"), under=(_L1.format("requests", "st"),)),
        emulated=_f("global_store_sectors", under=("global_store_requests",)),
    ),
    Metric("dram_rate", "GB/s", ("memory",), "Device memory traffic over device time", "more",
           ncu=_f(*_DRAM, under=(_TIME,))),
    Metric("l2_hit", "%", ("memory",), "Sectors that L2 had", "more", ncu=_f("lts__t_sector_hit_rate.pct")),
    Metric(
        "bank_conflicts", "%", ("memory", "reduction"), "Shared-memory wavefronts that are there for bank conflicts",
        "less", ncu=_f(*_CONFLICTS, under=_WAVES, scale=100.0),
        emulated=_f(
            "shared_load_bank_conflicts", "shared_store_bank_conflicts",
            under=("shared_load_wavefronts", "shared_store_wavefronts"), scale=100.0,
        ),
    ),
    Metric(
        "shared_bytes", "B a block", ("memory",), "Shared memory, static and dynamic",
        ncu=_f("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
        static=_f("shared_bytes"),
    ),
    Metric("memory_stall", "cycles", ("memory",), "Cycles a warp waits for global memory, an issued instruction",
           "less", ncu=_f(_STALL.format("long_scoreboard"))),
    Metric("ipc", "", ("compute",), "Warp instructions an SM issues in an active cycle, of 4", "more",
           ncu=_f("sm__inst_executed.avg.per_cycle_active")),
    Metric("fma_use", "%", ("compute",), "FP32 pipe, of its peak while the SM is active", "more",
           ncu=_f("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active")),
    Metric("tensor_use", "%", ("compute",), "Tensor pipe, of its peak while the SM is active", "more",
           ncu=_f("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")),
    Metric(
        "instructions", "", ("compute",), "Warp instructions executed: SASS under ncu, PTX in the emulator", "less",
        ncu=_f(*_ISSUED), emulated=_f("warp_instructions"),
    ),
    Metric(
        "code_instructions", "", ("compute",), "Instructions in the kernel's PTX text", "less",
        static=_f("code_instructions"),
    ),
    Metric(
        "fma_share", "%", ("compute",), "FP32 arithmetic, of the instructions executed (static: of the text)", "more",
        ncu=_f("smsp__inst_executed_pipe_fma.sum", under=_ISSUED, scale=100.0),
        emulated=_f("inst_fma", under=("warp_instructions",), scale=100.0),
        static=_f("code_fma", under=("code_instructions",), scale=100.0),
    ),
    Metric(
        "special_share", "%", ("compute",), "Special functions (exp, rsqrt, sin, ...), of the instructions executed",
        "less", ncu=_f("smsp__inst_executed_pipe_xu.sum", under=_ISSUED, scale=100.0),
        emulated=_f("inst_sfu", under=("warp_instructions",), scale=100.0),
        static=_f("code_sfu", under=("code_instructions",), scale=100.0),
    ),
    Metric(
        "divergence", "%", ("compute",), "Branches at which the lanes of a warp part", "less",
        ncu=_f("smsp__sass_average_branch_targets_threads_uniform.pct", scale=-1.0, offset=100.0),
        emulated=_f("divergent_branches", under=("branches",), scale=100.0),
    ),
    Metric("spills", "B a thread", ("compute",), "Registers stored to and loaded from local memory, by the compiler",
           "less", static=_f("spill_bytes")),
    Metric("local_sectors", "", ("compute",), "32-byte sectors of local memory, spills above all", "less",
           ncu=_f("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum")),
    Metric("barrier_stall", "cycles", ("reduction",), "Cycles a warp waits at barriers, an issued instruction", "less",
           ncu=_f(_STALL.format("barrier"))),
    Metric("barriers", "", ("reduction",), "Barriers passed, once a block", "less", emulated=_f("barriers")),
    Metric(
        "atomics", "", ("reduction",), "Atomic and reduction instructions of warps", "less",
        ncu=_f(
            "smsp__sass_inst_executed_op_global_atom.sum", "smsp__inst_executed_op_global_red.sum",
            "smsp__inst_executed_op_shared_atom.sum",
        ),
        emulated=_f("atomics"),
    ),
    Metric(
        "tail", "%", ("reduction", "config"), "Room of the last wave that stays empty, of all waves", "less",
        static=_f("tail_pct"),
    ),
)  # fmt: skip
"""Every counter there is. Occupancy limits, registers, spills and the tail are facts of the compile and the launch:
they complete the other sources, whose record keeps its own name."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def standard(source: Source, raw: Mapping[str, Raw], static: Mapping[str, Raw]) -> Counters:
    """A source's own counts in the names and units of the table, completed by static figures, for each kernel."""
    kernels = {name: _of_kernel(source, raw.get(name, {}), static.get(name, {})) for name in [*raw, *static]}
    return Counters(source=source, kernels={name: values for name, values in kernels.items() if values})


def _of_kernel(source: Source, raw: Raw, static: Raw) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric in METRICS:
        for formula, values in ((metric.formula(source), raw), (metric.static, static)):
            value = formula.value(values) if formula is not None else None
            if value is not None:
                found[metric.name] = value
                break
    return found


def source_of(name: str, source: Source) -> Source:
    """Which source gave a figure in a record of `source`: the record's own, else the static figures."""
    return source if BY_NAME[name].formula(source) is not None else "static"


def of_role(role: str) -> Iterator[Metric]:
    """The metrics that a role is shown, in the table's order."""
    return (metric for metric in METRICS if role in metric.roles)


def worst(counters: Counters, name: str) -> float | None:
    """The figure of a plan's worst kernel: the least where more is better, else the largest; None if none has it."""
    values = [kernel[name] for kernel in counters.kernels.values() if name in kernel]
    if not values:
        return None
    return min(values) if BY_NAME[name].better == "more" else max(values)
