"""From groups and library calls to a Composite: order, names of tensors, kernels that several parts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from warpsmith.kernels.composite import Composite, Kernel, KernelPart, Layout, LibraryPart, Part
from warpsmith.kernels.costs import flops_by_unit
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.registry import family_named
from warpsmith.kernels.indexing import row_major
from warpsmith.kernels.library import leaves_its_result
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import ITEM_BYTES, GraphInput, NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.partition.anchors import library_step
from warpsmith.kernels.partition.channels_last import is_channels_last
from warpsmith.kernels.partition.convolved import convolved
from warpsmith.kernels.partition.fuse import Fusion, Group
from warpsmith.kernels.partition.price import Prices, canonical
from warpsmith.kernels.partition.scratch import Scratch, Tenant, assigned
from warpsmith.kernels.partition.slices import node_of, operands_of, stored_leaf
from warpsmith.kernels.partition.ways import Laid, laid_ways
from warpsmith.kernels.partition.windows import window_of
from warpsmith.kernels.records import Buffer, LibraryStep, View
from warpsmith.kernels.region import OneRegion
from warpsmith.kernels.rewrites.choose import least_us

_OPEN_KERNELS = 4
"""Kernels whose slots are open, the dearest ones."""
_LAYOUTS: tuple[Layout, ...] = ("contiguous", "channels_last")
_OPEN_SHARE = 0.02
"""Share of the own kernels' estimate from which a kernel's slots matter."""


def compose(graph: OpGraph, device: DeviceModel) -> Composite:
    """The graph as kernels and library calls, cut where the model's estimate is least. Raises NotYetError naming the
    node that neither a region nor a library computes."""
    return _cheapest(laid_ways(graph, Prices(device), "contiguous"), device)


def composites(graph: OpGraph, device: DeviceModel, prices: Prices | None = None) -> list[Composite]:
    """The same in every layout that there is for it: contiguous and, with dense convolutions, channels last. Raises
    NotYetError where there is none. `prices` are those of other graphs that are like it."""
    prices = prices or Prices(device)
    found: list[Composite] = []
    refusal: NotYetError | None = None
    for layout in _LAYOUTS:
        try:
            ways = laid_ways(graph, prices, layout)
            found += [_cheapest(ways, device)] if ways else []
        except NotYetError as error:
            refusal = refusal or error
    if not found:
        assert refusal is not None
        raise refusal
    return found


def recomposed(graph: OpGraph, device: DeviceModel, like: Composite) -> Composite:
    """The graph at other sizes, cut as another composite and by the same families. Raises NotYetError where that is not
    possible."""
    ways = laid_ways(graph, Prices(device), like.layout, frozenset(like.products))
    if not ways:
        raise NotYetError("the graph has no dense convolution at this size")
    refusal: NotYetError | None = None
    for laid in ways:
        try:
            return _recomposed(laid, like)
        except NotYetError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _recomposed(laid: Laid, like: Composite) -> Composite:
    groups = laid.fusion.cut_like(like.cuts)
    found = _Composer(laid, _ordered(laid.fusion, groups)).composite(like)
    if [_made_by(part) for part in found.parts] != [_made_by(part) for part in like.parts]:
        raise NotYetError("parts that share a kernel differ at this size")
    for kernel in found.kernels:
        reason = family_named(kernel.family).refuse(kernel.region)
        if reason is not None:
            raise NotYetError(f"the {kernel.family} family does not compute a part at this size: {reason}")
    return found


def _cheapest(ways: Sequence[Laid], device: DeviceModel) -> Composite:
    """The composite of least estimate. Raises NotYetError where there is none."""
    found: list[Composite] = []
    refusal: NotYetError | None = None
    for laid in ways:
        try:
            found.append(composed(laid))
        except NotYetError as error:
            refusal = refusal or error
    if not found:
        assert refusal is not None
        raise refusal
    return min(found, key=lambda whole: least_us([whole], device)) if len(found) > 1 else found[0]


def composed(laid: Laid) -> Composite:
    """The graph of one way, cut where the model's estimate is least. Raises NotYetError."""
    groups = laid.fusion.run()
    return _Composer(laid, _ordered(laid.fusion, groups)).composite()


def _made_by(part: Part) -> int | str:
    return part.kernel if isinstance(part, KernelPart) else part.step.library


def _is_copied(leaf: GraphInput) -> bool:
    """Whether a caller hands the tensor in anew with each call."""
    return leaf.ref.startswith("in") and not leaf.scalar


def _spanned(spec: TensorSpec) -> int:
    """Bytes from the first element to the last one."""
    if not spec.numel:
        return 0
    last = sum((size - 1) * step for size, step in zip(spec.shape, spec.strides, strict=True))
    return (last + 1) * ITEM_BYTES[spec.dtype]


def _stays(node: OpNode) -> bool:
    """Whether the result of a library's node can only be read where the library puts it, or be copied."""
    step = library_step(node, node.name, lambda name: name)
    return leaves_its_result(step.library, step.kwargs, in_order=not is_channels_last(node.out))


_Item = Group | OpNode
"""A group, or a node that a library computes."""


def _made(item: _Item) -> Group:
    return (item.name,) if isinstance(item, OpNode) else item


def _read(fusion: Fusion, item: _Item) -> tuple[str, ...]:
    """Stored tensors and inputs that an item reads."""
    if not isinstance(item, OpNode):
        return fusion.leaves(item, fusion.stored)
    bases = (window_of(fusion.graph, name, fusion.stored).base for name in operands_of(item))
    return tuple(dict.fromkeys(bases))


def _ordered(fusion: Fusion, groups: list[Group]) -> list[_Item]:
    """Groups and library nodes so that each comes after what it reads, otherwise as the graph has them."""
    items: list[_Item] = [*groups, *(node for node in fusion.live if node.name in fusion.libraries)]
    rank = {node.name: place for place, node in enumerate(fusion.live)}
    items.sort(key=lambda item: max(rank[name] for name in _made(item)))
    ordered: list[_Item] = []
    done = set(fusion.graph.inputs)
    reads = {_made(item): _read(fusion, item) for item in items}
    while items:
        ready = next((item for item in items if done.issuperset(reads[_made(item)])), None)
        if ready is None:
            raise NotYetError("groups of nodes wait for each other")
        items.remove(ready)
        ordered.append(ready)
        done.update(_made(ready))
    return ordered


@dataclass(slots=True)
class _Composer:
    """Names what the parts of one fusion read and write."""

    laid: Laid
    order: list[_Item]
    regions: dict[OneRegion, int] = field(default_factory=dict)
    """Distinct ones, numbered."""
    names: dict[str, str] = field(default_factory=dict)
    results: dict[str, Buffer] = field(default_factory=dict)
    """Of libraries, read where they lie."""
    views: dict[str, View] = field(default_factory=dict)
    view_names: dict[View, str] = field(default_factory=dict)
    """The other way round."""

    @property
    def fusion(self) -> Fusion:
        """Of the graph in this layout."""
        return self.laid.fusion

    def composite(self, like: Composite | None = None) -> Composite:
        """All parts; kernels that are equal are shared. `like` says which family computes each of them."""
        scratch = self._place()
        self.views = dict(scratch.views) | self._in_place()
        self.view_names = {view: name for name, view in reversed(self.views.items())}
        parts: list[Part] = [self._part(item) for item in self.order if self.laid.wholes.isdisjoint(_made(item))]
        parts += self._copies()
        graph = self.fusion.graph
        return Composite(
            kernels=self._kernels(parts) if like is None else self._kernels_like(like),
            parts=tuple(parts),
            buffers=tuple(scratch.buffers.items()),
            views=tuple(self.views.items()),
            flops=graph.flops,
            floor_bytes=graph.floor_bytes,
            flops_by_unit=tuple(flops_by_unit(graph).items()),
            source_ops=tuple(node.op for node in self.fusion.live),
            input_bytes=tuple(_spanned(leaf.spec) for leaf in graph.inputs.values() if _is_copied(leaf)),
            output_bytes=tuple(graph.spec(ref.name).nbytes for ref in graph.outputs),
            layout=self.laid.layout,
            products=tuple(sorted(self.fusion.products)),
        )

    def _place(self) -> Scratch:
        """Gives every stored tensor its name in the plan: an input's, an output's, or one in scratch."""
        graph = self.fusion.graph
        self.names = {name: leaf.ref for name, leaf in graph.inputs.items()}
        for position, ref in enumerate(graph.outputs):
            self.names.setdefault(ref.name, f"out{position}")
        for number, base in enumerate(self.fusion.in_place.values()):
            self.names[base] = f"r{number}"
        last = {name: place for place, item in enumerate(self.order) for name in _read(self.fusion, item)}
        begun = self._begun()
        tenants: list[Tenant] = []
        for place, item in enumerate(self.order):
            for name in (name for name in _made(item) if name not in self.names and name not in self.laid.pieces):
                self.names[name] = f"t{len(tenants) + len(self.results)}"
                spec = graph.spec(name)
                if isinstance(item, OpNode) and _stays(item):
                    strides = None if spec.strides == row_major(spec.shape) else spec.strides
                    self.results[self.names[name]] = Buffer(
                        dtype=spec.dtype, shape=spec.shape, init="result", strides=strides
                    )  # fmt: skip
                    continue
                # What is made at load time is there before the first part and after the last one.
                lives = (begun.get(name, place), last.get(name, place))
                lives = (-1, len(self.order)) if self._at_load_time(item) else lives
                tenants.append(Tenant(self.names[name], spec, *lives))
        scratch = assigned(tenants)
        views = scratch.views | self._pieces(scratch.views)
        return replace(scratch, buffers=scratch.buffers | self.results, views=views)

    def _begun(self) -> dict[str, int]:
        """The place of the first part that writes a piece, by the name of what it is a piece of."""
        found: dict[str, int] = {}
        for place, item in enumerate(self.order):
            for piece in (self.laid.pieces[name] for name in _made(item) if name in self.laid.pieces):
                found.setdefault(piece.whole, place)
        return found

    def _pieces(self, views: Mapping[str, View]) -> dict[str, View]:
        """Where pieces lie: windows on what they are pieces of, which may be a window itself."""
        found: dict[str, View] = {}
        for number, (name, piece) in enumerate(self.laid.pieces.items()):
            spec, whole = self.fusion.graph.spec(name), self.names[piece.whole]
            under = views.get(whole)
            self.names[name] = f"p{number}"
            found[f"p{number}"] = View(
                of=under.of if under else whole, shape=spec.shape, strides=spec.strides,
                offset=piece.start * spec.strides[piece.dim] + (under.offset if under else 0),
            )  # fmt: skip
        return found

    def _in_place(self) -> dict[str, View]:
        """Results of libraries that lie in outputs of another shape."""
        graph, found = self.fusion.graph, {}
        for output, base in self.fusion.in_place.items():
            spec = graph.spec(base)
            found[self.names[base]] = View(of=self.names[output], shape=spec.shape, strides=spec.strides)
        return found

    def _part(self, item: _Item) -> Part:
        if isinstance(item, OpNode):
            step = library_step(item, self.names[item.name], self._window)
            last = is_channels_last(item.out) or self._reads_channels_last(item)
            work = convolved(self.fusion.graph, item, channels_last=last)
            copied = item.out.nbytes if _stays(item) and step.out not in self.results else 0
            left = step.out.startswith("out") and not any(item.name in _read(self.fusion, one) for one in self.order)
            return LibraryPart(step, item.flops, item.bytes_moved, work, copied, left)
        parameter = self._copied_parameter(item)
        if parameter is not None:
            step = LibraryStep(library="clone", args=(parameter,), out=self.names[item[0]])
            return LibraryPart(step, 0, 0, laid_out=item)
        part = self._kernel_part(item, self.fusion.region(item), [self.names[name] for name in item])
        return replace(part, load_time=self._at_load_time(item))

    def _copied_parameter(self, group: Group) -> str | None:
        """What the plan calls the parameter, or the window on one, of which a group is a copy made at load time."""
        if len(group) > 1 or not self._at_load_time(group):
            return None
        name, *others = operands_of(self.fusion.graph.node_index[group[0]])
        if others:
            # A rewrite computes it.
            return None
        base = window_of(self.fusion.graph, name, self.fusion.stored).base
        return self._window(name) if base in self.fusion.graph.inputs else None

    def _reads_channels_last(self, node: OpNode) -> bool:
        return any(is_channels_last(self.fusion.graph.spec(name)) for name in operands_of(node)[:1])

    def _at_load_time(self, item: _Item) -> bool:
        return not isinstance(item, OpNode) and self.laid.weights.issuperset(item)

    def _kernel_part(self, group: Group, region: OneRegion, outputs: Sequence[str]) -> KernelPart:
        """`outputs` are the plan's names of what the region calls out0, out1, ..."""
        alone, binding = canonical(region)
        number = self.regions.setdefault(alone, len(self.regions))
        bound = tuple(
            (new, outputs[int(new[3:])] if new.startswith("out") else self._named(old)) for new, old in binding
        )
        return KernelPart(number, bound, group)

    def _named(self, ref: str) -> str:
        """The plan's name of what a slice reads: a stored node, or an input of the whole graph."""
        node = node_of(ref)
        return ref if node is None else self.names[node]

    def _window(self, name: str) -> str:
        """What the plan calls a tensor that a library reads: a view where it is no whole one."""
        window = window_of(self.fusion.graph, name, self.fusion.stored)
        base = self.names[window.base]
        if window.whole:
            return base
        under = self.views.get(base)
        spec = window.spec
        view = View(
            of=under.of if under else base, shape=spec.shape, strides=spec.strides,
            offset=spec.offset + (under.offset if under else 0),
        )  # fmt: skip
        name = self.view_names.setdefault(view, f"v{len(self.views)}")
        self.views[name] = view
        return name

    def _copies(self) -> list[KernelPart]:
        """Outputs that are an input, or another output once more."""
        graph, copies = self.fusion.graph, []
        for position, ref in enumerate(graph.outputs):
            if self.names[ref.name] == f"out{position}":
                continue
            leaf = graph.inputs.get(ref.name) or stored_leaf(graph, ref.name)
            region = lower(OpGraph({ref.name: leaf}, (), (NodeRef(ref.name),), graph.input_count))
            copies.append(self._kernel_part((ref.name,), region, [f"out{position}"]))
        return copies

    def _kernels(self, parts: list[Part]) -> tuple[Kernel, ...]:
        """The distinct kernels, the slots of those open that take a share of the estimate."""
        prices = self.fusion.prices
        uses = [part.kernel for part in parts if isinstance(part, KernelPart) and not part.load_time]
        cost = [uses.count(number) * prices.of(region).us for number, region in enumerate(self.regions)]
        dearest = sorted(range(len(cost)), key=lambda number: -cost[number])[:_OPEN_KERNELS]
        tunable = {number for number in dearest if number in uses and cost[number] >= _OPEN_SHARE * sum(cost)}
        found = []
        for number, region in enumerate(self.regions):
            family = prices.of(region).family
            assert family is not None
            found.append(Kernel(region, family.name, number in tunable))
        return tuple(found)

    def _kernels_like(self, like: Composite) -> tuple[Kernel, ...]:
        if len(self.regions) != len(like.kernels):
            raise NotYetError("parts that share a kernel differ at this size")
        pairs = zip(like.kernels, self.regions, strict=True)
        return tuple(Kernel(region, kernel.family, kernel.tunable) for kernel, region in pairs)
