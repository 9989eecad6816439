"""The state of one batch of blocks: what the text of the compiled blocks calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.bulk import Bulk
from warpsmith.sandbox.emulator.copies import Copies
from warpsmith.sandbox.emulator.emitter import NUMPY
from warpsmith.sandbox.emulator.global_access import GlobalAccess
from warpsmith.sandbox.emulator.lanes import Geometry, Lanes
from warpsmith.sandbox.emulator.local_access import LocalAccess
from warpsmith.sandbox.emulator.program import Kernel
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.shared_access import SharedAccess
from warpsmith.sandbox.emulator.spaces import CLUSTER_SHIFT, LOCAL_WINDOW, SHARED_WINDOW
from warpsmith.sandbox.emulator.vectors import Array
from warpsmith.sandbox.emulator.violations import Violation

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Checks:
    """Which checks run; bounds, alignment and barriers are always checked."""

    races: bool = True
    uninitialized: bool = True


class Machine:
    """Memory spaces and barriers of a batch. Registers live in the scheduler."""

    def __init__(
        self, kernel: Kernel, geometry: Geometry, memory: GlobalAccess, *, addresses: Mapping[str, Array],
        params: Mapping[str, tuple[bytes, int]], dynamic_shared: int, cluster: int, checks: Checks, poison: int,
    ) -> None:  # fmt: skip
        self.kernel, self.geometry, self.memory, self.cluster = kernel, geometry, memory, cluster
        self.params = params
        size = kernel.shared_size
        if dynamic_shared:
            size = -(-size // kernel.dynamic_align) * kernel.dynamic_align + dynamic_shared
        self.shared = SharedAccess(
            geometry, size, kernel.granules["shared"], cluster=cluster, races=checks.races,
            uninitialized=checks.uninitialized, poison=poison, waits_otherwise=kernel.spins,
        )  # fmt: skip
        self.local = LocalAccess(geometry, kernel.local_size, uninitialized=checks.uninitialized, poison=poison)
        self.copies = Copies(geometry, memory, self.shared)
        self.bulk = Bulk(geometry, memory, self.shared)
        self.address = dict(addresses)
        for offsets in (kernel.shared, kernel.local):
            self.address |= {name: np.array([[offset]], np.uint64) for name, offset in offsets.items()}
        self.writes = 0
        """Memory instructions and clock readings that may change what happens next."""
        self.arrived: dict[int, tuple[int, Array]] = {}
        self.cluster_arrived = np.zeros(geometry.shape, np.int64)
        self._params: dict[tuple[str, int, str], Array] = {}

    def param(self, name: str, offset: int, kind: str) -> Array:
        """A kernel parameter as a (1, 1) value."""
        key = (name, offset, kind)
        if key not in self._params:
            data, _ = self.params[name]
            dtype = np.dtype(NUMPY[kind])
            self._params[key] = np.frombuffer(data, dtype, 1, offset).reshape(1, 1)
        return self._params[key]

    def load(
        self, lanes: Lanes, space: str, base: Array, offset: int, kind: str, count: int, site: int,
        guard: Array | None, strong: str,
    ) -> list[Array]:  # fmt: skip
        """Lane values of `count` neighbouring elements."""
        dtype = np.dtype(NUMPY[kind])
        request = Request(lanes, base, offset, dtype.itemsize * count, site, lanes.active(guard))
        if request.empty:
            return [np.zeros((1, 1), dtype)] * count
        if space == "generic":
            return self._load_generic(request, dtype, count, strong)
        return self._load(space, request, dtype, count, strong)

    def _load(self, space: str, request: Request, dtype: Any, count: int, strong: str) -> list[Array]:
        if space == "global":
            return self.memory.load(request, dtype, count, strong == "acquire", constant=strong == "nc")
        if space == "local":
            return self.local.load(request, dtype, count)
        return self.shared.load(request, dtype, count, cluster=space == "cluster", strong=strong == "acquire")

    def _load_generic(self, request: Request, dtype: Any, count: int, strong: str) -> list[Array]:
        parts = self._by_space(request)
        if len(parts) == 1:
            return self._load(*parts[0], dtype, count, strong)
        total = [np.zeros(request.lanes.shape, dtype) for _ in range(count)]
        for space, part in parts:
            assert part.mask is not None
            for place, value in enumerate(self._load(space, part, dtype, count, strong)):
                total[place] = np.where(part.mask, value, total[place])
        return total

    def _by_space(self, request: Request) -> list[tuple[str, Request]]:
        """Generic addresses sorted into the spaces where they lie, as offsets there."""
        if request.bounds()[1] < SHARED_WINDOW:
            return [("global", request)]
        addresses = request.addresses()
        shared, local = (addresses >= SHARED_WINDOW) & (addresses < LOCAL_WINDOW), addresses >= LOCAL_WINDOW
        parts = []
        for space, window, flags in (
            ("global", 0, ~(shared | local)), ("cluster", SHARED_WINDOW, shared), ("local", LOCAL_WINDOW, local),
        ):  # fmt: skip
            if flags.any():
                part = request if flags.all() else request.narrowed(flags)
                part.offset -= window
                parts.append((space, part))
        return parts

    def store(
        self, lanes: Lanes, space: str, base: Array, offset: int, kind: str, values: tuple[Array, ...], site: int,
        guard: Array | None, strong: str,
    ) -> None:  # fmt: skip
        """Write neighbouring elements."""
        self.writes += 1
        dtype = np.dtype(NUMPY[kind])
        request = Request(lanes, base, offset, dtype.itemsize * len(values), site, lanes.active(guard))
        if request.empty:
            return
        for where, part in self._by_space(request) if space == "generic" else [(space, request)]:
            if where == "global":
                self.memory.store(part, dtype, values, bool(strong))
            elif where == "local":
                self.local.store(part, dtype, values)
            else:
                self.shared.store(part, dtype, values, cluster=where == "cluster", strong=bool(strong))

    def atomic(
        self, lanes: Lanes, space: str, name: str, base: Array, offset: int, kind: str, values: tuple[Array, ...],
        site: int, guard: Array | None, wanted: bool, order: str,
    ) -> Array | None:  # fmt: skip
        """Read-modify-write; the old values if wanted."""
        dtype = np.dtype(NUMPY[kind])
        request = Request(lanes, base, offset, dtype.itemsize, site, lanes.active(guard))
        if request.empty:
            return np.zeros((1, 1), dtype)
        parts = self._by_space(request) if space == "generic" else [(space, request)]
        if order and self.memory.epochs is not None:
            self.memory.epochs.release(self.active_rows(lanes))
        result: Array | None = None
        for where, part in parts:
            if where == "local":
                part.fail("trap", np.ones(part.base.shape, np.bool_), "atomic on local memory")
            if where == "global":
                before = self.memory.atomic_changes
                got = self.memory.atomic(part, name, dtype, values, wanted)
                self.writes += self.memory.atomic_changes - before
            else:
                self.writes += 1
                got = self.shared.atomic(part, name, dtype, values, cluster=where == "cluster", wanted=wanted)
            if got is not None:
                result = got if result is None or part.mask is None else np.where(part.mask, got, result)
        return result

    @staticmethod
    def active_rows(lanes: Lanes) -> Array:
        """Rows of the batch with an active lane."""
        rows = lanes.row_index[:, 0]
        return rows if lanes.mask is None else rows[lanes.mask.any(axis=1)]

    def fence(self, lanes: Lanes) -> None:
        """A fence beyond the block: what its threads wrote can be handed over."""
        if self.memory.epochs is not None:
            self.memory.epochs.release(self.active_rows(lanes))

    def acquire(self, rows: Array) -> None:
        """Blocks that may rely on what others handed over."""
        if self.memory.epochs is not None:
            self.memory.epochs.acquire(rows)

    def warp_barrier(self, lanes: Lanes) -> None:
        """`bar.warp.sync`: orders shared-memory accesses within a warp."""
        if self.shared.hazards is not None:
            self.shared.hazards.pass_warp_barrier(lanes)

    def trap(self, lanes: Lanes, site: int, guard: Array | None, what: str) -> None:
        """Fail if any lane gets here."""
        mask = lanes.active(guard)
        flags = np.ones(lanes.shape, np.bool_) if mask is None else np.broadcast_to(mask, lanes.shape)
        if flags.any():
            row, col = np.argwhere(flags)[0]
            place = int(lanes.row_index[row, 0]), int(lanes.col_index[0, col])
            raise Violation("trap", f"the kernel stopped itself ({what})", site=site, row=place[0], thread=place[1])

    def arrive(self, lanes: Lanes, barrier: int, threads: int) -> None:
        """`bar.arrive`: counted at the barrier, without waiting."""
        count = np.zeros(self.geometry.shape[0], np.int64)
        here = np.full(lanes.shape[0], lanes.shape[1]) if lanes.mask is None else lanes.mask.sum(axis=1)
        count[lanes.row_index[:, 0]] += here
        before = self.arrived.get(barrier)
        self.arrived[barrier] = (threads, count if before is None else before[1] + count)

    def cluster_arrive(self, lanes: Lanes) -> None:
        """`barrier.cluster.arrive`, which releases."""
        active = np.ones(lanes.shape, np.int64) if lanes.mask is None else lanes.mask.astype(np.int64)
        self.cluster_arrived[lanes.row_index, lanes.col_index] += active
        self.fence(lanes)

    def mbarrier_wait(
        self, lanes: Lanes, base: Array, offset: int, parity: Array, site: int, guard: Array | None
    ) -> Array:
        """Whether a phase is over; what its copies bring is there then."""
        over, moved = self.bulk.wait(lanes, base, offset, parity, site, guard)
        self.writes += moved
        return over

    def map_rank(self, address: Array, rank: Array, kind: str) -> Array:
        """`mapa`: a shared address of this block as the same one in another block of the cluster."""
        wide = address.astype(np.uint64)
        own = wide & np.uint64((1 << CLUSTER_SHIFT) - 1)
        window = wide & np.uint64(SHARED_WINDOW)
        mapped = window | own | ((rank.astype(np.uint64) + np.uint64(1)) << np.uint64(CLUSTER_SHIFT))
        return mapped if kind == "u64" else mapped.astype(np.uint32)

    def rank_of(self, lanes: Lanes, address: Array) -> Array:
        """`getctarank`: the rank in a shared address; the own one where it carries none."""
        rank = (address.astype(np.uint64) >> np.uint64(CLUSTER_SHIFT)) & np.uint64(0xFF)
        own = lanes.special("cluster_ctarank")
        return np.where(rank == 0, own, rank.astype(np.uint32) - np.uint32(1))
