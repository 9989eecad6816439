"""Owns the window family: pooling and depthwise convolution, inputs read once, kept in registers or shared memory."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.row_choices import Choices, ChoiceSpace, bounded, power_of_two_at_least, space_of
from warpsmith.kernels.families.window_cost import registers_of, window_features
from warpsmith.kernels.families.window_layout import geometry, layout_of, load_width, span, store_width
from warpsmith.kernels.families.window_text import KERNEL, all_loads, window_context
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import WindowRegion
from warpsmith.kernels.slots import Role, Slot, Values

ENUMS = {"path": "Path", "fold": "Fold", "cache_hint": "Hint", "writes": "Writes"}
NAIVE: Values = {
    "lanes": 128, "teams": 1, "path": "direct", "vector": 1, "ahead": 1, "cache_hint": "default", "writes": "own",
    "items": 1, "rows": 1, "slices": 1, "fold": "taps",
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "lanes": ("config", "threads along the last dimension"),
    "teams": ("config", "groups of so many threads in a block, each with rows of its own"),
    "path": ("memory", "direct: inputs through L1; staged: a team's inputs in shared memory; columns: outer dimensions "
                       "folded first, then the last one through shared memory"),
    "vector": ("memory", "neighbouring inputs in one access"),
    "ahead": ("memory", "rows of inputs read before the first is used, on their way to shared memory"),
    "cache_hint": ("memory", "cache hint of results: streaming = evict first"),
    "writes": ("memory", "own: a thread writes what it computed; turned: a warp's outputs change hands in shared "
                         "memory, so that neighbouring threads write neighbours"),
    "items": ("compute", "outputs a thread computes along the last dimension"),
    "rows": ("compute", "along the dimension before it: inputs that they share are read once"),
    "slices": ("compute", "along the outermost dimension"),
    "fold": ("reduction", "taps: every window tap by tap; rows: each row of taps once for all windows that share it"),
}  # fmt: skip
_DROPS = (
    ("items", 3), ("rows", 16), ("items", 16), ("ahead", 1), ("ahead", 8), ("teams", 2), ("vector", 2), ("slices", 4),
    ("lanes", 256), ("teams", 8), ("items", 8), ("rows", 2), ("cache_hint", "streaming"), ("items", 2), ("lanes", 64),
    ("path", "staged"), ("teams", 4), ("writes", "turned"), ("fold", "taps"), ("rows", 1), ("path", "direct"),
    ("rows", 4),
)  # fmt: skip
MAX_UNROLLED = 640
"""Operations on inputs that one thread's code may hold one after the other: compile time grows with them."""
HALO = 0.05
"""What reading all inputs once more from L2 is held to cost the prior, as a share: the model takes it for free while
DRAM is busier, but neighbours drift apart and L2 may have lost what they share."""
STATIC_SHARED = 40 << 10
"""Bytes of static shared memory that a kernel may have, some left for what it has beside."""
LEAST_THREADS = 512
"""Of a multiprocessor, for which the template leaves registers."""
_TEAMS = (1, 2, 4, 8)
_FEW_THREADS = 128
"""A block of fewer ends before another has begun in its place, which the model does not know."""
_SAME = 0.001
"""Share by which estimates differ and say nothing."""
SHARED_SHARE = 3
"""Blocks that should fit a multiprocessor side by side, so that some read while others compute."""


class WindowFamily:
    """Teams of threads compute tiles of outputs of one plane, from inputs that are read once where it pays."""

    name = "window"
    doc = "pooling (mean, max, with positions) and depthwise convolution over one to three dimensions"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, WindowRegion):
            return "it is no window"
        return "it has no elements" if region.kept_size == 0 else None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one output a thread, every tap read through the caches."""
        region = _window(region)
        return (*_space(region, device).slots(), *_code_slots(region))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Threads, alignment, what a path can do, length of the code, registers, shared memory and grid."""
        region = _window(region)
        return _check(region, device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Pooling: columns first; convolution: rows kept in registers."""
        return _space(_window(region), device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _window(region)
        space = _space(region, device).holding(values)
        full = space.defaults | values
        context = window_context(region) | {"fixed": space.fixed_lines()}
        slots = (*space.slots(), *_code_slots(region))
        built = assemble(render(load_template("window.cu"), context), slots, values, ENUMS)
        layout = layout_of(region, full)
        step = KernelStep(
            kernel=KERNEL,
            grid=(layout.blocks, 1, 1),
            block=(layout.threads, 1, 1),
            shared_bytes=layout.shared_bytes,
            args=tuple(parameter.ref for parameter in codegen.parameters(all_loads(region), region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _window(region)
        return (window_features(KERNEL, region, _space(region, device).defaults | values),)


def _window(region: AnyRegion) -> WindowRegion:
    if not isinstance(region, WindowRegion):
        raise TypeError("the window family computes windows alone")
    return region


def _code_slots(region: WindowRegion) -> tuple[Slot, ...]:
    before, after = codegen.render_lines(region.lines), codegen.render_lines(region.post)
    results = ", ".join(store.var for store in region.stores)
    slots = [
        Slot("load_transform", "memory", "code", (before,), before, f"statements for one input, to {region.operand}"),
        Slot("post", "compute", "code", (after,), after, f"statements for one output, from {region.var} to {results}"),
    ]
    if region.weight is not None:
        text = codegen.render_lines(region.weight_lines)
        doc = f"statements for one tap's weight, to {region.weight}"
        slots.insert(1, Slot("weight_transform", "memory", "code", (text,), text, doc))
    return tuple(slots)


def _check(region: WindowRegion, device: DeviceModel, values: Values) -> Invalid | None:
    layout = layout_of(region, values)
    return (
        common.check_threads(layout.threads, ("lanes", "teams"))
        or _check_path(region, values)
        or _check_share(region, values)
        or _check_code(layout.unrolled)
        or _check_registers(region, device, layout.threads, values)
        or common.check_shared(device, layout.shared_bytes, ("path", "items", "rows", "teams"))
        or _check_turned(layout.turned_bytes)
        or common.check_grid(layout.blocks, ("teams", "items", "rows"))
    )


def _check_registers(region: WindowRegion, device: DeviceModel, threads: int, values: Values) -> Invalid | None:
    """The template leaves room for LEAST_THREADS: without a bound the compiler reads ahead without end."""
    slots = ("rows", "slices", "items")
    return common.check_registers(device, max(threads, LEAST_THREADS), registers_of(region, values), slots)


def _check_path(region: WindowRegion, values: Values) -> Invalid | None:
    path, vector, items = values["path"], int(values["vector"]), int(values["items"])
    plain = int(values["rows"]) == 1 and int(values["slices"]) == 1
    special = region.weight is not None or region.position is not None
    if path == "columns" and special:
        return Invalid(("path",), "shape", "columns are folded first only where all taps count alike")
    if values["fold"] == "rows" and (special or path == "columns"):
        return Invalid(("fold", "path"), "shape", "nothing to fold by rows here")
    if values["fold"] == "rows" and plain and (items == 1 or path == "staged"):
        return Invalid(("fold", "rows"), "shape", "one window a thread shares no row")
    if values["writes"] == "turned" and (path != "direct" or items == 1):
        return Invalid(("writes", "path", "items"), "shape", "neighbouring threads write neighbours already")
    if path == "direct" and int(values["ahead"]) > 1:
        return Invalid(("ahead", "path"), "shape", "nothing is on its way to shared memory")
    if path == "direct" and vector > 1 and (items * region.dims[-1].stride % vector or (plain and items == 1)):
        message = f"the inputs of {items} outputs are no whole vectors of {vector}"
        return Invalid(("vector", "items"), "alignment", message)
    return None


def _check_share(region: WindowRegion, values: Values) -> Invalid | None:
    """Threads and outputs a thread that a dimension does not have."""
    g, tile = geometry(region), int(values["lanes"]) * int(values["items"])
    if int(values["items"]) > 1 and tile >= 8 * max(g.w.out, 32):
        return Invalid(("items", "lanes"), "shape", f"a tile of {tile} for {g.w.out} outputs")
    for name, dim in (("rows", g.h), ("slices", g.d)):
        if int(values[name]) > max(1, 4 * dim.out):
            return Invalid((name,), "shape", f"{values[name]} outputs of a dimension of {dim.out}")
    return None


def _check_turned(turned_bytes: int) -> Invalid | None:
    if turned_bytes <= STATIC_SHARED:
        return None
    message = f"{turned_bytes} bytes change hands, {STATIC_SHARED} at most"
    return Invalid(("writes", "items", "lanes", "teams"), "shared_memory", message)


def _check_code(unrolled: int) -> Invalid | None:
    if unrolled <= MAX_UNROLLED:
        return None
    message = f"{unrolled} operations in a row, {MAX_UNROLLED} at most"
    return Invalid(("rows", "slices", "items"), "registers", message)


@lru_cache(maxsize=256)
def _space(region: WindowRegion, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    g, width = geometry(region), load_width(region)
    special = region.weight is not None or region.position is not None
    deep = g.d.out > 1 and g.d.taps > 1
    choices: Choices = {
        "lanes": tuple(n for n in (32, 64, 128, 256) if n <= power_of_two_at_least(g.w.out) or n in (32, 128)),
        "teams": _TEAMS,
        "path": ("direct", "staged") if special else ("direct", "staged", "columns"),
        "vector": tuple(v for v in (1, 2, 4) if v <= width),
        "ahead": tuple(n for n in (1, 4, 8) if n == 1 or g.d.taps * g.h.taps > 1),
        "cache_hint": ("default", "streaming"),
        "items": tuple(n for n in (1, 2, 3, 4, 8, 16) if n == 1 or 32 * n < 2 * max(32, g.w.out)),
        "rows": tuple(n for n in (1, 2, 4, 8, 16) if n <= g.h.out) if g.h.taps > 1 else (1,),
        "slices": tuple(n for n in (1, 2, 4) if n <= g.d.out) if deep else (1,),
        "fold": ("taps",) if special else ("taps", "rows"),
        "writes": ("own", "turned") if _is_ragged(region) else ("own",),
    }
    best = _sensible(region, device, choices)
    drops = [(name, value) for name, value in _DROPS if value != NAIVE[name]]
    left = bounded(choices, lambda values: _check(region, device, values) is None, drops, best)
    return space_of(DOCS, ENUMS, left, NAIVE, best)


def _is_ragged(region: WindowRegion) -> bool:
    """Whether rows of results start anywhere, so that no vector of them is aligned."""
    return region.dims[-1].out > 1 and all(store_width(region, store) == 1 for store in region.stores)


def _sensible(region: WindowRegion, device: DeviceModel, choices: Choices) -> Values:
    """Pooling folds columns first, convolution stages its inputs; of the tiles that leave a multiprocessor room for
    several blocks the one that the cost model puts first."""
    g = geometry(region)
    wishes: Values = NAIVE | {"vector": max(int(v) for v in choices["vector"])}
    wishes["ahead"] = 4 if 4 in choices["ahead"] else 1
    wishes["path"] = "columns" if "columns" in choices["path"] else "staged"
    if region.floor_bytes > device.l2_bytes and not _is_ragged(region):
        # A sector that two rows or two warps fill had better wait for both.
        wishes["cache_hint"] = "streaming"
    along = _along(region, device, choices, wishes)
    if along is not None:
        return along
    tall = choices["rows"] if g.h.taps * g.h.dilation > g.h.stride else (1,)
    flat = choices["slices"] if g.d.taps * g.d.dilation > g.d.stride else (1,)
    best: tuple[float, Values] | None = None
    for slices, rows, lanes, items in product(flat, tall, choices["lanes"], choices["items"]):
        teams = max(1, min(8, 256 // int(lanes)))
        values = wishes | {"slices": slices, "rows": rows, "lanes": lanes, "items": items, "teams": teams}
        room = SHARED_SHARE * (layout_of(region, values).shared_bytes + 1024) <= device.shared_per_sm
        if not room or _check(region, device, values) is not None:
            continue
        us = _us(region, device, values)
        if best is None or us < best[0]:
            best = (us, values)
    return _with_fewer_teams(region, device, *best) if best else dict(NAIVE)


def _along(region: WindowRegion, device: DeviceModel, choices: Choices, wishes: Values) -> Values | None:
    """Of pooling along one dimension whose windows overlap: outputs side by side in registers, where whole vectors of
    inputs serve as many outputs. Measured on an H200, a mean of 8 taps takes 1.10 ms so, 1.21 by columns."""
    g = geometry(region)
    flat = g.h.taps == g.d.taps == 1 and g.w.taps * g.w.dilation > g.w.stride
    values = wishes | {"path": "direct", "lanes": 128, "teams": 1, "items": 4}
    values |= {name: choices[name][-1] for name in ("fold", "writes")}
    vectors = -(-span(g.w, 4) // int(wishes["vector"]))
    fits = flat and 4 in choices["items"] and vectors < 4
    return values if fits and _check(region, device, values) is None else None


def _us(region: WindowRegion, device: DeviceModel, values: Values) -> float:
    """The model's estimate, what a block reads of its neighbours' inputs held against it."""
    features = window_features(KERNEL, region, values)
    again = features.l2_read / max(1, features.dram_read) - 1.0
    return total_us(breakdown((features,), device)) * (1.0 + HALO * again)


def _with_fewer_teams(region: WindowRegion, device: DeviceModel, us: float, values: Values) -> Values:
    """Fewer teams where the estimate is the same: those of a plane's last block that have no rows read as the others
    do, which the emulator counts."""
    for teams in _TEAMS:
        fewer = values | {"teams": teams}
        enough = teams * int(values["lanes"]) >= _FEW_THREADS and teams < int(values["teams"])
        if enough and _check(region, device, fewer) is None and _us(region, device, fewer) <= (1.0 + _SAME) * us:
            return fewer
    return values
