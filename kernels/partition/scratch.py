"""Scratch memory of a plan: tensors that do not live at the same time share a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warpsmith.kernels.indexing import row_major
from warpsmith.kernels.opgraph import TensorSpec
from warpsmith.kernels.records import Buffer, View


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tensor between two parts of a plan: written by part `first`, read for the last time by part `last`."""

    name: str
    spec: TensorSpec
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """Buffers, and the views that the tensors are where they share one."""

    buffers: dict[str, Buffer]
    views: dict[str, View]


@dataclass(slots=True)
class _Room:
    """A buffer with the tensors that lie in it one after another."""

    dtype: str
    numel: int
    tenants: list[Tenant] = field(default_factory=list)
    until: int = -1
    """The last part that needs what is in it."""

    def free_at(self, part: int) -> bool:
        """Whether nothing in it is needed by `part` or after it."""
        return self.until < part


def assigned(tenants: Sequence[Tenant]) -> Scratch:
    """A place for every tensor: the smallest free buffer of its dtype that holds it, else the largest free one, which
    grows, else a new one."""
    rooms: list[_Room] = []
    for tenant in sorted(tenants, key=lambda tenant: tenant.first):
        room = _room_for(tenant, rooms)
        room.tenants.append(tenant)
        room.until = max(room.until, tenant.last)
        room.numel = max(room.numel, tenant.spec.numel)
    buffers: dict[str, Buffer] = {}
    views: dict[str, View] = {}
    for number, room in enumerate(rooms):
        only = room.tenants[0]
        if len(room.tenants) == 1 and only.spec.strides == row_major(only.spec.shape):
            buffers[only.name] = Buffer(dtype=room.dtype, shape=only.spec.shape)
            continue
        buffers[f"b{number}"] = Buffer(dtype=room.dtype, shape=(room.numel,))
        for one in room.tenants:
            views[one.name] = View(of=f"b{number}", shape=one.spec.shape, strides=one.spec.strides)
    return Scratch(buffers, views)


def _room_for(tenant: Tenant, rooms: list[_Room]) -> _Room:
    free = [room for room in rooms if room.dtype == tenant.spec.dtype and room.free_at(tenant.first)]
    holding = [room for room in free if room.numel >= tenant.spec.numel]
    if holding:
        return min(holding, key=lambda room: room.numel)
    if free:
        return max(free, key=lambda room: room.numel)
    rooms.append(_Room(tenant.spec.dtype, 0))
    return rooms[-1]
