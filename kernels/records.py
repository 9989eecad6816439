"""Records that cross a process or the disk: candidates, launch plans, reports and outcomes (see docs/interface.md)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt

SCHEMA_VERSION = 1

Status = Literal[
    "ok", "screened", "compile_error", "rejected", "launch_error", "crashed", "hang", "wrong", "suspicious",
    "not_measured", "infrastructure_error",
]  # fmt: skip
Provenance = Literal["own", "hybrid", "library"]
PrecisionClass = Literal["exact", "rewritten", "compensated", "lower"]
SlotValue = StrictInt | str | StrictBool


def _known_version(version: int) -> int:
    if version != SCHEMA_VERSION:
        raise ValueError(f"version {version} is not known, this one reads {SCHEMA_VERSION}")
    return version


SchemaVersion = Annotated[StrictInt, AfterValidator(_known_version)]
"""The version of a record's form, as it is read: another one's fields may mean something else."""


class Record(BaseModel):
    """Base of all records: frozen, and closed to unknown fields. No truth value or text is taken for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def content_hash(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Buffer(Record):
    """Scratch memory that the launcher allocates for a candidate."""

    dtype: str
    shape: tuple[StrictInt, ...]
    init: Literal["poison", "zero", "result"] = "poison"
    """`zero` costs time: the fill is part of what is timed. `result`: no memory of the launcher's, but what the one
    library step that names the buffer as `out` has computed, where the library has put it; the steps after it read it
    there."""
    strides: tuple[StrictInt, ...] | None = None
    """Of a result that is not row-major, elements."""


class View(Record):
    """A name for a strided window on a buffer, an output or a parameter: arguments of steps may be such names."""

    of: str
    """What the window lies on; no other view."""
    shape: tuple[StrictInt, ...]
    strides: tuple[StrictInt, ...]
    """Elements."""
    offset: StrictInt = 0
    """Elements from the first one of `of`."""


class KernelStep(Record):
    """One launch of an `extern "C"` kernel."""

    kernel: str
    grid: tuple[StrictInt, StrictInt, StrictInt]
    block: tuple[StrictInt, StrictInt, StrictInt]
    cluster: tuple[StrictInt, StrictInt, StrictInt] = (1, 1, 1)
    shared_bytes: StrictInt = 0
    """Dynamic shared memory per block in bytes."""
    args: tuple[str | dict[str, StrictInt | StrictFloat], ...]
    """`inN`, `outN`, `param:NAME`, a buffer's name, or a typed scalar such as {"i32": 1024}."""
    cooperative: StrictBool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Every argument that a name stands for, in order."""
        return tuple(one for one in self.args if isinstance(one, str))


class LibraryStep(Record):
    """One call of an ATen operator from the allow-list; makes the result hybrid or library."""

    library: str
    args: tuple[str | dict[str, StrictInt | StrictFloat], ...]
    out: str
    kwargs: dict[str, Any] = {}
    """By the names of the operator's schema: numbers, truth values, lists of integers; text names a tensor as in
    `args`, a list of texts several."""
    benchmark: StrictBool = False
    """Of a convolution: whether cuDNN times its algorithms at the first call and keeps the fastest, as under
    `torch.backends.cudnn.benchmark`, in place of the one that its heuristics name."""

    @property
    def named(self) -> tuple[str, ...]:
        """Every tensor that the call reads, as often as it is named."""
        return (*(one for one in self.args if isinstance(one, str)), *(name for _, name in self.keyword_names))

    @property
    def keyword_names(self) -> tuple[tuple[str, str], ...]:
        """Keyword and tensor of those that are given by keyword."""
        listed = ((key, value if isinstance(value, list | tuple) else [value]) for key, value in self.kwargs.items())
        return tuple((key, one) for key, values in listed for one in values if isinstance(one, str))


class LaunchPlan(Record):
    """`launch.json`: what the launcher allocates and in which order it launches."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    buffers: dict[str, Buffer] = {}
    views: dict[str, View] = {}
    steps: tuple[KernelStep | LibraryStep, ...]
    prepare: tuple[KernelStep | LibraryStep, ...] = ()
    graph: StrictBool = False
    """Whether the steps are recorded once as a CUDA graph and replayed: inputs are copied into memory of the launcher's
    before each run, outputs out of it after each. The emulator runs the steps."""

    @property
    def identity(self) -> dict[str, Any]:
        """What the plan's name is made of: fields that it leaves out take no part, so that a plan keeps the name that
        it had before there were such fields."""
        plan = self.model_dump(mode="json")
        for name in ("views", "graph"):
            if not plan[name]:
                del plan[name]
        for buffer in plan["buffers"].values():
            if buffer["strides"] is None:
                del buffer["strides"]
        for step in (*plan["prepare"], *plan["steps"]):
            if step.get("benchmark") is False:
                del step["benchmark"]
        return plan

    def launches_of(self, kernel: str) -> tuple[KernelStep, ...]:
        """Every step that launches a kernel of this name."""
        steps = (*self.prepare, *self.steps)
        return tuple(step for step in steps if isinstance(step, KernelStep) and step.kernel == kernel)

    @property
    def benchmarks(self) -> bool:
        """Whether a library times its algorithms at the first call, which other work on the device would mislead."""
        return any(isinstance(step, LibraryStep) and step.benchmark for step in (*self.prepare, *self.steps))

    @property
    def operands(self) -> frozenset[str]:
        """Every buffer, input, output and parameter that a step takes or a view lies on."""
        steps = (*self.prepare, *self.steps)
        named = {name for step in steps for name in step.named}
        named |= {step.out for step in steps if isinstance(step, LibraryStep)}
        return frozenset(self.base(name) for name in named).union(view.of for view in self.views.values())

    def base(self, name: str) -> str:
        """What a name of a view lies on; any other name as it is."""
        return self.views[name].of if name in self.views else name


class Candidate(Record):
    """Device source plus a launch plan: everything there is to compile and run. No host code."""

    source: str
    plan: LaunchPlan
    family: str = "freeform"
    values: dict[str, SlotValue] = {}
    """Slot values that produced the text; empty for foreign candidates."""
    parent: str | None = None
    precision_class: PrecisionClass = "exact"
    slot_lines: dict[str, tuple[StrictInt, StrictInt]] = {}
    """Slot name -> first and last line (1-based) of its text in `source`, for diagnostics."""

    @property
    def id(self) -> str:
        """Content hash of source and plan (16 hex digits); parent and slot values do not take part."""
        return content_hash([self.source, self.plan.identity])[:16]


class Failure(Record):
    """Why a candidate did not get further."""

    stage: Literal["rules", "compile", "emulate", "launch", "verify", "time", "infrastructure"]
    message: str
    slot: str | None = None
    kind: str | None = None
    """Short machine-readable cause, e.g. `spill`, `too_many_threads`, `out_of_bounds`, `race`, `mismatch`."""


class Diagnostic(Record):
    """One compiler message, mapped to the slot whose text it points at."""

    severity: Literal["error", "warning", "remark"]
    line: StrictInt | None
    message: str
    slot: str | None = None


class KernelResources(Record):
    """What ptxas says about one entry point."""

    registers: StrictInt
    spill_stores: StrictInt
    """Bytes."""
    spill_loads: StrictInt
    """Bytes."""
    shared_bytes: StrictInt
    """Static shared memory in bytes, without the driver's own 1 KiB a block."""
    stack_bytes: StrictInt = 0


class CompiledModule(Record):
    """What a translation unit of a candidate compiles to; kernels are found by name in exactly one."""

    cubin_path: str
    ptx_path: str
    cubin_hash: str | None = None
    """SHA-256 of the cubin."""


class CompileReport(Record):
    """Outcome of compiling a candidate with NVRTC."""

    ok: bool
    arch: str
    nvrtc_version: str
    cached: bool
    """Whether nothing had to be compiled for it."""
    seconds: StrictFloat
    """Of the units that were compiled for it; where all came from the cache, what they took when they were made."""
    resources: dict[str, KernelResources] = {}
    """By kernel."""
    diagnostics: tuple[Diagnostic, ...] = ()
    modules: tuple[CompiledModule, ...] = ()
    """In the order of the source; none where some unit does not compile."""
    failure: Failure | None = None

    def ptx_texts(self) -> tuple[str, ...]:
        """The PTX of each module, read from its file."""
        return tuple(Path(module.ptx_path).read_text() for module in self.modules)


class Counters(Record):
    """Hardware-like counts of one run of a candidate, per kernel name; the source says how they were had. An outcome's
    have the names and units of the table in `tools/profiling/counters.py`, a launch's those of its backend."""

    source: Literal["ncu", "emulated", "static"]
    kernels: dict[str, dict[str, StrictFloat]]


class VerifyReport(Record):
    """Comparison of a candidate with the fp64 oracle over several inputs."""

    ok: bool
    verified_on: str
    """`gpu:NVIDIA H200` or `emulator:sm_90`."""
    checks: StrictInt
    """Input sets compared."""
    error_ratio: StrictFloat | None
    """Largest rms error against fp64, divided by the eager operator's own (floored at 1 ulp rms)."""
    max_abs_error: StrictFloat | None
    failure: Failure | None = None
    counters: Counters | None = None
    seconds: StrictFloat = 0.0
    eager_peak_bytes: StrictInt | None = None
    """What eager holds at most on this device, weights and inputs included; where it is measured, on a GPU."""
    judge_peak_bytes: StrictInt | None = None
    """What the process that judged has held at most for this problem."""
    not_emulated: str | None = None
    """The opcode or feature the emulator refused, by name."""


class Quantiles(Record):
    """Microseconds."""

    p10: StrictFloat
    p50: StrictFloat
    p90: StrictFloat
    n: StrictInt


class Speedup(Record):
    """Median ratio baseline / candidate with its bootstrap interval (95 %)."""

    value: StrictFloat
    low: StrictFloat
    high: StrictFloat


class TimingReport(Record):
    """Paired measurement of a candidate against baselines on one device."""

    device: str
    time_us: Quantiles
    baseline_us: dict[str, Quantiles] = {}
    """Keys `eager`, `compile`."""
    speedup: dict[str, Speedup] = {}
    launch_overhead_us: StrictFloat | None = None
    seconds: StrictFloat = 0.0
    method: str = "events"
    failure: Failure | None = None


class Outcome(Record):
    """A line of results.jsonl. A figure that was not taken is None, never 0 or 1."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    candidate: str
    parent: str | None = None
    problem_hash: str
    status: Status
    verified_on: str | None = None
    provenance: Provenance | None = None
    precision_class: PrecisionClass = "exact"
    family: str = "freeform"
    error_ratio: StrictFloat | None = None
    max_abs_error: StrictFloat | None = None
    time_us: Quantiles | None = None
    speedup: dict[str, Speedup] | None = None
    roofline_fraction: StrictFloat | None = None
    estimated_us: StrictFloat | None = None
    launch_overhead_us: StrictFloat | None = None
    registers: StrictInt | None = None
    spills: StrictInt | None = None
    shared_bytes: StrictInt | None = None
    counters: Counters | None = None
    slots: dict[str, SlotValue] = {}
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    shape_specific: bool | None = None
    """True where only the declared shape was judged (foreign candidates), False where hidden shapes passed as well."""
    own_share: StrictFloat | None = None
    """Share of the device time that the plan's own kernels take, measured step by step."""
    steps_us: tuple[StrictFloat, ...] | None = None
    """Median device time of each step of the plan in microseconds, in order; of a plan of one own kernel, None."""
    isolation: str | None = None
    """Profile of the process that judged: `strict`, `user` or `bare`."""
    binary: str | None = None
    """SHA-256 of the compiled code, without line numbers, and of the launch plan."""
    duplicate_of: str | None = None
    """The earlier candidate of the run with the same binary, whose outcome this is."""
    samples: str | None = None
    """SHA-256 of the blob that holds the raw timing samples."""
    compile_s: StrictFloat | None = None
    verify_s: StrictFloat | None = None
    time_s: StrictFloat | None = None
    eager_peak_bytes: StrictInt | None = None
    """GPU memory that eager holds at most, weights and inputs included."""
    baseline_errors: dict[str, StrictFloat] | None = None
    """Of compiled baselines: the rms error of their outputs against fp64, in units of eager's."""
    judge_peak_bytes: StrictInt | None = None
    """GPU memory that the process that judged has held at most for this problem, up to this verdict."""
    baseline_peak_bytes: dict[str, StrictInt] | None = None
    """Of compiled baselines: GPU memory that compiling and running it holds at most, weights and inputs included."""

    @property
    def correct(self) -> bool:
        """Whether every check that ran on it passed."""
        return self.status in ("ok", "screened")

    @property
    def cost_us(self) -> float | None:
        """What policies minimise: the measured median where there is one, else the estimate."""
        return self.time_us.p50 if self.time_us else self.estimated_us


class Event(Record):
    """A line of events.jsonl."""

    at: str
    """UTC, ISO 8601."""
    kind: str
    data: dict[str, Any] = {}


class RunManifest(Record):
    """manifest.json: everything needed to say how a run was made."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    run_id: str
    created: str
    config: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    device: str
    arch: str
    driver: str | None = None
    seed: StrictInt
    problem_hash: str
    problem_path: str
    isolation: dict[str, Any] = {}
    """Profile and layers of the processes that judge."""
    audit: dict[str, Any] = {}
    """What the problem's checks accept that they should not."""
