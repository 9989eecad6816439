"""The grid of one launch and the order in which its blocks run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warpsmith.sandbox.emulator.machine import Dim3
from warpsmith.sandbox.emulator.program import Kernel
from warpsmith.sandbox.emulator.vectors import Array

_LANES_PER_BATCH = 65536
_STATE_PER_BATCH = 256 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """Launch configuration."""

    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    dynamic_shared: int = 0
    cooperative: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]


@dataclass(frozen=True, slots=True)
class Disorder:
    """An order of blocks drawn from a seed, half of them long before the others; `mirrored`, the same halves the other
    way round. A block that goes before one whose result it needs shows in one of the two if they are in different
    halves, whatever else the order is."""

    seed: int
    mirrored: bool = False

    def of_step(self, *place: int) -> Disorder:
        """An order of its own for each step of a plan."""
        return Disorder(int(np.random.default_rng([self.seed, *place]).integers(1 << 62)), self.mirrored)

    def batches(self, order: Array, count: int, unit: int, *, waiting: bool) -> list[Array]:
        """Batches of `count` blocks, clusters of `unit` blocks kept together; `waiting` where blocks may spin on
        earlier ones: none comes before another batch that it may wait for."""
        chance = np.random.default_rng(self.seed)
        if not waiting:
            found = _cut(_shuffled(order, unit, chance), 0, count)
            return found[::-1] if self.mirrored else found
        # Where the first batch ends differs, so that no two blocks are always apart.
        start = 0 if len(order) <= count else unit * int(chance.integers(1, count // unit + 1)) - count
        return [_shuffled(batch, unit, chance) for batch in _cut(order, start, count)]

    def late(self, blocks: int, unit: int) -> Array | None:
        """Which rows of a batch start late: half of the clusters, in the shape (blocks, 1)."""
        clusters = blocks // unit
        if clusters < 2:
            return None
        late = np.arange(clusters) >= clusters // 2
        return np.repeat(late ^ self.mirrored, unit).reshape(-1, 1)


def batches(kernel: Kernel, shape: Shape, blocks: range, disorder: Disorder | None = None) -> list[Array]:
    """Linear block indices of each batch: whole clusters, as many blocks as lanes and memory allow."""
    size = kernel.shared_size + shape.dynamic_shared + kernel.local_size * shape.threads
    by_state = _STATE_PER_BATCH // max(1, 6 * size)
    count = max(1, min(_LANES_PER_BATCH // shape.threads, by_state))
    if shape.cooperative:
        count = len(blocks)
    unit = shape.cluster_size
    count = max(1, count // unit) * unit
    order = cluster_order(shape)[blocks.start : blocks.stop : blocks.step]
    if disorder is None:
        return _cut(order, 0, count)
    return disorder.batches(order, count, unit, waiting=kernel.spins)


def cluster_order(shape: Shape) -> Array:
    """Linear block indices with the blocks of a cluster next to each other, in order of their rank."""
    index = np.arange(shape.blocks, dtype=np.int64)
    if shape.cluster_size == 1:
        return index
    gx, gy, _ = shape.grid
    x, y, z = index % gx, index // gx % gy, index // (gx * gy)
    cx, cy, cz = shape.cluster
    rank = x % cx + cx * (y % cy + cy * (z % cz))
    number = x // cx + gx // cx * (y // cy + gy // cy * (z // cz))
    return np.lexsort((rank, number))


def _cut(order: Array, start: int, count: int) -> list[Array]:
    """Pieces of `count` blocks; with a negative `start` the first is shorter by as many."""
    return [order[max(0, first) : first + count] for first in range(start, len(order), count)]


def _shuffled(order: Array, unit: int, chance: np.random.Generator) -> Array:
    """Blocks in another order, those of a cluster still side by side."""
    return order if len(order) % unit else chance.permutation(order.reshape(-1, unit)).reshape(-1)
