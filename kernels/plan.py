"""Plan: what will be computed and at what least cost, as facts for roles and readable text for people."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels.composite import AnyRegion, Composite, KernelPart
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.lowering.device_math import plain
from warpsmith.kernels.lowering.lower import live_nodes, lower
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.compose import composites
from warpsmith.kernels.partition.price import Prices, canonical
from warpsmith.kernels.partition.sums import as_sums
from warpsmith.kernels.region import Axis, Line, Load, MatmulRegion, OneRegion, Region, ScanRegion, Store, WindowRegion
from warpsmith.kernels.rewrites.choose import Rewritten, chosen, least_us


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One operator of the graph."""

    name: str
    op: str
    pattern: str
    shape: tuple[int, ...]
    dtype: str
    flops: int
    bytes_moved: int
    """Bytes read plus written if the node ran alone."""
    source: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One region that one kernel (set) computes, and the floors below which no kernel can go."""

    name: str
    nodes: tuple[NodeFacts, ...]
    region: AnyRegion
    floor_bytes: int
    """Every used input read once, every output written once."""
    unfused_bytes: int
    """Bytes moved if every node ran as its own kernel."""
    flops: int
    others: tuple[AnyRegion, ...] = ()
    """Other ways to compute the same, worth a search as well."""
    rewritten: Rewritten | None = None
    """Ways to compute another graph that gives the same in real arithmetic, where the cost model has them cheaper."""

    @property
    def ways(self) -> tuple[AnyRegion, ...]:
        """The region and the others."""
        return (self.region, *self.others)

    @property
    def kind(self) -> str:
        """`map`, `reduce-map`, `matmul`, `scan`, `window` or `composite`."""
        if isinstance(self.region, Composite):
            return "composite"
        if isinstance(self.region, MatmulRegion):
            return "matmul"
        if isinstance(self.region, ScanRegion):
            return "scan"
        if isinstance(self.region, WindowRegion):
            return "window"
        return "reduce-map" if self.region.rounds else "map"

    @property
    def intensity(self) -> float:
        """FLOPs per byte at the floor."""
        return self.flops / self.floor_bytes

    def describe(self) -> str:
        """The plan as text: floors, axes, every read, line, reduction and write."""
        shape = f"{_counted(self.region)}, a " if isinstance(self.region, Composite) else "one "
        head = [
            f"{self.name}: {shape}{self.kind} region of {len(self.nodes)} operators",
            f"  floor {self.floor_bytes:,} bytes, {self.flops:,} FLOPs ({self.intensity:.2f} FLOP/byte); "
            f"operator by operator {self.unfused_bytes:,} bytes",
        ]
        region = self.region
        body = _composite_text(region) if isinstance(region, Composite) else _body_text(region)
        return "\n".join(head + [f"  {line}" for line in body + self._rewritten_text()])

    def _rewritten_text(self) -> list[str]:
        if self.rewritten is None:
            return []
        way = self.rewritten.ways[0]
        body = _composite_text(way) if isinstance(way, Composite) else _body_text(way)
        return [f"or rewritten by {', '.join(self.rewritten.rewrites)}", *(f"  {line}" for line in body)]


def plan(graph: OpGraph, name: str = "region0", *, device: DeviceModel | None = None) -> Plan:
    """The plan of a graph. Without a device it is one region; with one also several, where one does not do or the cost
    model has several cheaper, and those of the graph after the rewrites that pay. Raises NotYetError naming the node
    that is in the way."""
    rewritten = None
    if device is None:
        ways: list[AnyRegion] = [lower(graph)]
    else:
        # A rewrite leaves most of a graph as it is.
        prices = Prices(device)
        ways = _ways(graph, prices)
        rewritten = chosen(graph, ways, lambda other: _ways(other, prices), device)
    nodes = tuple(
        NodeFacts(n.name, n.op, n.pattern, n.out.shape, n.out.dtype, n.flops, n.bytes_moved, n.source)
        for n in live_nodes(graph)
    )
    unfused = sum(node.bytes_moved for node in nodes)
    # A product whose mask leaves sums out needs fewer than its operators say.
    flops = min(graph.flops, *(way.flops for way in ways))
    return Plan(name, nodes, ways[0], graph.floor_bytes, unfused, flops, tuple(ways[1:]), rewritten)


def _ways(graph: OpGraph, prices: Prices) -> list[AnyRegion]:
    """All ways of a graph; a product with a vector is a reduction as well, whose families read at the copy rate."""
    ways, sums = _ways_of(graph, prices), as_sums(graph)
    if sums is None:
        return ways
    try:
        found = _ways_of(sums, prices)
    except NotYetError:
        return ways
    if all(isinstance(way, Composite) for way in (*ways, *found)):
        # Both would be searched by one family: the cheaper one stands for both.
        return min((found, ways), key=lambda some: least_us(some, prices.device))
    return [*(way for way in found if not isinstance(way, Composite)), *ways]


def _ways_of(graph: OpGraph, prices: Prices) -> list[AnyRegion]:
    """One region and the parts that the graph can be cut into, as far as both exist and say different things."""
    device = prices.device
    try:
        whole = lower(graph)
    except NotYetError:
        found = composites(graph, device, prices)
        return sorted(found, key=lambda way: least_us([way], device)) if len(found) > 1 else list(found)
    alone = prices.of(canonical(whole)[0]).us
    try:
        parts, *_ = composites(graph, device, prices)
    except NotYetError:
        return [whole]
    if len(parts.parts) == 1 and isinstance(parts.parts[0], KernelPart):
        return [whole]
    if not _covered(whole, device):
        return [parts]
    if isinstance(whole, MatmulRegion):
        return [whole, parts]
    together = sum(
        prices.of(parts.kernels[part.kernel].region).us for part in parts.parts if isinstance(part, KernelPart)
    )
    return [whole] if alone <= together else [parts, whole]


def _covered(region: OneRegion, device: DeviceModel) -> bool:
    try:
        return bool(specs_for(region, device))
    except NotYetError:
        return False


def _counted(whole: Composite) -> str:
    parts = "1 part" if len(whole.parts) == 1 else f"{len(whole.parts)} parts"
    return parts if whole.layout == "contiguous" else f"{parts}, channels last"


def _composite_text(whole: Composite) -> list[str]:
    text = []
    for number, part in enumerate(whole.parts, 1):
        once = ", once at load time" if part.load_time else ""
        if isinstance(part, KernelPart):
            tensors = dict(part.binding)
            read = ", ".join(tensors[name] for name in tensors if name.startswith("in"))
            written = ", ".join(tensors[name] for name in tensors if name.startswith("out"))
            text.append(
                f"{number}. kernel {part.kernel}: {', '.join(part.outputs)} from {read or 'nothing'} to {written}{once}"
            )
        else:
            text.append(f"{number}. library {part.step.library}: {', '.join(part.step.named)} to {part.step.out}{once}")
    for number, kernel in enumerate(whole.kernels):
        if kernel.tunable:
            text += [f"kernel {number} ({kernel.family})", *(f"  {line}" for line in _body_text(kernel.region))]
    return text


def _body_text(region: OneRegion) -> list[str]:
    if isinstance(region, MatmulRegion):
        return _matmul_text(region)
    if isinstance(region, WindowRegion):
        return _window_text(region)
    return _scan_text(region) if isinstance(region, ScanRegion) else _region_text(region)


def _region_text(region: Region) -> list[str]:
    text = [f"kept {_axes(region.kept)}; reduced {_axes(region.reduced)}"]
    text += [_load_text(load) for load in region.loads]
    for number, turn in enumerate(region.rounds, 1):
        text.append(f"round {number}")
        text += [f"  {_line_text(line)}" for line in turn.lines]
        text += [f"  {r.var} = {r.kind}({r.operand})" for r in turn.reductions]
        text += [f"  {_line_text(line)}" for line in turn.finish]
    text += [_line_text(line) for line in region.post]
    return text + [_store_text(store) for store in region.stores]


def _matmul_text(region: MatmulRegion) -> list[str]:
    text = [f"batch {region.batch}, m {region.m}, n {region.n}, k {region.k}"]
    text += [_load_text(load) for load in region.a_loads] + [_line_text(line) for line in region.a_lines]
    text += [_load_text(load) for load in region.b_loads] + [_line_text(line) for line in region.b_lines]
    needed = " and ".join(f"{plane.m} * m + {plane.n} * n + {plane.offset} >= 0" for plane in region.needed)
    text.append(f"acc = sum over k of {region.a_var} * {region.b_var}{f', needed where {needed}' if needed else ''}")
    text += [_load_text(load) for load in region.epilogue_loads]
    text += [_line_text(line) for line in region.epilogue]
    return text + [_store_text(store) for store in region.stores]


def _scan_text(region: ScanRegion) -> list[str]:
    before = "before" if region.exclusive else "up to"
    text = [f"kept {_axes(region.kept)}; scanned {_axes((region.axis,))}"]
    text += [_load_text(load) for load in region.loads] + [_line_text(line) for line in region.lines]
    text.append(f"{region.var} = {region.kind} of {region.operand} {before} {region.axis.name}")
    text += [_load_text(load) for load in region.post_loads if load not in region.loads]
    text += [_line_text(line) for line in region.post]
    return text + [_store_text(store) for store in region.stores]


def _window_text(region: WindowRegion) -> list[str]:
    text = [f"kept {_axes(region.kept)}"]
    for number, dim in enumerate(region.dims):
        place = f"p{number} = o{number} * {dim.stride} - {dim.padding} + t{number} * {dim.dilation}"
        text.append(f"{place}  (outputs {dim.out}, inputs {dim.extent}, taps {dim.taps})")
    text += [_load_text(load) for load in (*region.loads, *region.weight_loads)]
    text += [_line_text(line) for line in (*region.lines, *region.weight_lines)]
    factor = f" * {region.weight}" if region.weight else ""
    place = f", {region.position} where it stands" if region.position else ""
    text.append(f"{region.var} = {region.kind} of {region.operand}{factor} over taps{place}")
    text += [_load_text(load) for load in region.post_loads] + [_line_text(line) for line in region.post]
    return text + [_store_text(store) for store in region.stores]


def _axes(axes: tuple[Axis, ...]) -> str:
    return " x ".join(f"{axis.name}:{axis.size}" for axis in axes) or "none"


def _load_text(load: Load) -> str:
    place = "" if load.address is None else f"[{load.address.c_text('')}]".replace("()", "")
    return f"{load.var} = {load.buffer}{place}  ({load.level}, {load.numel:,} elements)"


def _line_text(line: Line) -> str:
    return f"{line.var} = {plain(line.text)}"


def _store_text(store: Store) -> str:
    return f"{store.buffer}[{store.address.c_text('')}] = {store.var}".replace("()", "")
