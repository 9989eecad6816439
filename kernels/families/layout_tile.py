"""Owns how the layout family sees a region: the two axes of a tile, who goes through shared memory, at what cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from warpsmith.kernels.families import common
from warpsmith.kernels.families.common import SECTOR, WARP
from warpsmith.kernels.hashed import HashKept, hash_kept
from warpsmith.kernels.indexing import Algebra
from warpsmith.kernels.region import Axis, Line, Load, Region, Store

_BANKS = 32


@hash_kept
@dataclass(frozen=True, slots=True)
class Turn(HashKept):
    """A normalised map whose largest result runs along `j` while other tensors run along `i`."""

    region: Region
    i: Axis
    j: Axis
    turned: tuple[Load, ...]
    """Operands that are contiguous along `i`: they go through shared memory."""
    straight: tuple[Load, ...]
    """Operands that vary and are read as they are used."""
    fixed: tuple[Load, ...]
    """Python numbers, and operands with one element."""
    turned_stores: tuple[Store, ...]
    """Results that are contiguous along `i`: they go through shared memory too."""
    straight_stores: tuple[Store, ...]
    once: tuple[Load, ...]
    """Operands that do not vary along `j`: what normalises a channel, for instance."""

    columns: tuple[Load, ...]
    """Operands that do not vary along `i`. All elements of a thread stand at one place along `j`."""

    @property
    def once_lines(self) -> tuple[Line, ...]:
        """Statements over the operands `once` alone: a block computes them once for each place along `i`."""
        return self._over(self.once)

    @property
    def column_lines(self) -> tuple[Line, ...]:
        """Statements over `columns` alone: a compiler sees that they are the same for all elements of a thread."""
        return self._over(self.columns)

    def _over(self, loads: tuple[Load, ...]) -> tuple[Line, ...]:
        return _lines_over(self, loads)

    @property
    def body_lines(self) -> tuple[Line, ...]:
        """The other statements, one element at a time."""
        return _body_lines(self)

    @property
    def once_values(self) -> tuple[str, ...]:
        """What is known once for each place along `i` and read by the other statements or stored."""
        return _once_values(self)

    @property
    def staged(self) -> tuple[Load | Store, ...]:
        """All that goes through shared memory."""
        return (*self.turned, *self.turned_stores)

    def along(self, access: Load | Store) -> Axis:
        """The axis along which neighbouring threads walk an access."""
        return self.i if access in self.staged else self.j

    @property
    def result(self) -> Store:
        """The largest store, whose order in memory is that of the axes."""
        return _largest(self.region)

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes that a tile has one point of, in the order of the results."""
        return tuple(axis for axis in self.region.kept if axis not in (self.i, self.j))

    def tiles(self, tile_i: int, tile_j: int) -> int:
        """Tiles of the whole region."""
        found = -(-self.i.size // tile_i) * -(-self.j.size // tile_j)
        for axis in self.outer:
            found *= axis.size
        return found


# A search asks for these with each combination of values that it looks at.
@lru_cache(maxsize=1024)
def _lines_over(turn: Turn, loads: tuple[Load, ...]) -> tuple[Line, ...]:
    known, fixed = {load.var for load in loads}, {load.var for load in turn.fixed}
    found: list[Line] = []
    for line in turn.region.post:
        used = set(line.uses) - fixed
        if used and used <= known and not line.uses_axes:
            known.add(line.var)
            found.append(line)
    return tuple(found)


@lru_cache(maxsize=1024)
def _body_lines(turn: Turn) -> tuple[Line, ...]:
    once = turn.once_lines
    return tuple(line for line in turn.region.post if line not in once)


@lru_cache(maxsize=1024)
def _once_values(turn: Turn) -> tuple[str, ...]:
    read = {name for line in turn.body_lines for name in line.uses} | {store.var for store in turn.region.stores}
    known = [*(load.var for load in turn.once), *(line.var for line in turn.once_lines)]
    return tuple(name for name in known if name in read)


def turns(access: Load | Store, i: Axis, j: Axis) -> bool:
    """Whether an access is contiguous along `i` and not along `j`: strided, or in steps that are no multiple of it."""
    if access.address is None or access.address.stride(i.name) != 1:
        return False
    step = access.address.stride(j.name)
    return step is None or step > 1


@lru_cache(maxsize=256)
def turn_of(region: Region) -> Turn | None:
    """How a region is turned; None where no tensor of full size runs along another axis than its largest result."""
    region = common.normalised(region)
    if len(region.kept) < 2 or _largest(region).address.stride(region.kept[-1].name) != 1:
        return None
    j = region.kept[-1]
    everything = common.accesses(region)
    weights = {
        axis: sum(one.numel * common.item_bytes(one) for one in everything if turns(one, axis, j))
        for axis in region.kept[:-1]
    }
    i = max(weights, key=lambda axis: weights[axis])
    region, i = _with_long_tiles(region, i)
    j, everything = region.kept[-1], common.accesses(region)
    if not any(turns(one, i, j) and one.numel >= region.kept_size for one in everything):
        return None
    turned = tuple(load for load in region.loads if turns(load, i, j))
    turned_stores = tuple(store for store in region.stores if turns(store, i, j))
    straight_stores = tuple(store for store in region.stores if store not in turned_stores)
    varying = [load for load in region.loads if load.predicate or (load.address is not None and load.address.terms)]
    others = [load for load in varying if load not in turned]
    once = tuple(load for load in others if load.predicate is None and j.name not in common.address_of(load).axes)
    columns = tuple(
        load
        for load in others
        if load.predicate is None and load not in once and i.name not in common.address_of(load).axes
    )
    straight = tuple(load for load in others if load not in (*once, *columns))
    fixed = tuple(load for load in region.loads if load not in varying)
    return Turn(region, i, j, turned, straight, fixed, turned_stores, straight_stores, once, columns)


def _with_long_tiles(region: Region, i: Axis) -> tuple[Region, Axis]:
    """The region, and its axis `i`, with either axis of a tile joined with the one beside it in memory while it is
    shorter than a warp: others may step along the two as they like, by quotient and remainder."""
    while region.kept[-1].size < WARP and len(region.kept) > 2:
        outer, inner = region.kept[-2:]
        if outer == i or not _follow(_largest(region), outer, inner) or _named(region, outer, inner):
            break
        region = _joined(region, outer, inner)
    j = region.kept[-1]
    while i.size < WARP:
        turned = [one for one in common.accesses(region) if turns(one, i, j) and one.numel >= region.kept_size]
        beside = [axis for axis in region.kept if axis != j and turned and _follow(turned[0], axis, i)]
        if not beside or _named(region, beside[0], i):
            break
        region = _joined(region, beside[0], i)
        i = next(axis for axis in region.kept if axis.name == i.name)
    return region, i


def _follow(access: Load | Store, outer: Axis, inner: Axis) -> bool:
    """Whether runs along `inner` follow one another in memory along `outer`."""
    return common.address_of(access).stride(outer.name) == inner.size


def _named(region: Region, *axes: Axis) -> bool:
    return not common.named_axes(region).isdisjoint(axis.name for axis in axes)


def _joined(region: Region, outer: Axis, inner: Axis) -> Region:
    """The region with one axis in the place and under the name of `inner`."""
    whole = Axis(inner.name, outer.size * inner.size)
    kept = tuple(whole if axis == inner else axis for axis in region.kept if axis != outer)
    algebra = Algebra({axis.name: axis.size for axis in kept})
    place = algebra.axis(whole.name)
    digits = {outer.name: algebra.divide(place, inner.size), inner.name: algebra.modulo(place, inner.size)}
    loads = tuple(
        replace(load, address=algebra.substitute(load.address, digits)) if load.address else load
        for load in region.loads
    )
    stores = tuple(replace(store, address=algebra.substitute(store.address, digits)) for store in region.stores)
    return replace(region, kept=kept, loads=loads, stores=stores)


def _largest(region: Region) -> Store:
    return max(region.stores, key=lambda store: (store.numel, len(store.address.axes)))


def packable(turn: Turn, access: Load | Store, width: int) -> bool:
    """Whether vectors of `width` elements are contiguous and aligned along the axis in which the access is walked."""
    if isinstance(access, Load) and access.predicate is not None:
        return False
    return common.divisible(common.address_of(access), turn.along(access).name, width)


def requested(turn: Turn, access: Load | Store, run: int) -> int:
    """Bytes that runs of `run` elements request of L2: a run that does not begin with a sector touches one more."""
    size, total = common.item_bytes(access), turn.region.kept_size
    along = turn.along(access)
    run = min(run, along.size)
    stride = common.address_of(access).stride(along.name)
    if stride is None or stride > 1:
        return total * min(SECTOR, size * (stride or SECTOR))
    if stride == 0:
        return total // run * SECTOR
    begins = common.divisible(common.address_of(access), along.name, SECTOR // size)
    # Runs as long as the axis follow one another in memory where the axis across has their length as its stride.
    across = turn.j if along is turn.i else turn.i
    whole = run == along.size and common.address_of(access).stride(across.name) == run
    sectors = -(-run * size // SECTOR) + (0 if begins else 1)
    return total * size if whole else total // run * sectors * SECTOR


@lru_cache(maxsize=1024)
def wavefronts(size: int, tile_i: int, tile_j: int, pad: int, vector: int) -> tuple[int, int]:
    """Wavefronts of shared memory of one warp that fills and of one that reads `vector` elements a thread."""
    pitch = tile_i + pad
    fills, reads = 0, 0
    for lane in range(vector):
        places = [thread * vector for thread in range(WARP)]
        fills += conflicts([place // tile_i * pitch + place % tile_i + lane for place in places], size)
        reads += conflicts([(place % tile_j + lane) * pitch + place // tile_j for place in places], size)
    return fills, reads


def conflicts(places: list[int], size: int) -> int:
    """Wavefronts of one access of a warp: words that share a bank are served one after the other."""
    group = WARP if size <= 4 else WARP * 4 // size
    total = 0
    for first in range(0, WARP, group):
        words = {place * size // 4 + part for place in places[first : first + group] for part in range(-(-size // 4))}
        total += max(Counter(word % _BANKS for word in words).values())
    return total
