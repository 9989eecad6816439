"""Occupancy: how many blocks of a kernel an SM holds at once, and how many waves a grid makes.

Allocation follows NVIDIA's occupancy calculator (`cuda_occupancy.h` of the CUDA toolkit): registers go to
warps in units of 256 from the register file of one of four sub-partitions, shared memory to blocks in units
of 128 B (256 B before sm_80) with the driver's own share on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels.device import DeviceModel

WARP = 32
PARTITIONS = 4
"""Each SM since sm_70 has four, with a quarter of the registers and a scheduler each."""
REGISTER_UNIT = 256
MAX_REGISTERS = 255
MAX_THREADS = 1024
GPC = 16
"""SMs of most parts of the chip (sm_90 and later)."""
SHORT_PARTS = 2
"""Parts with fewer. Fits what was measured on an H200: 16 clusters of 16 blocks, two blocks to an SM, need two waves,
and 128 of them take 1.4 times what eight parts would."""
PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every device with clusters takes (CUDA C++ Programming Guide)."""

Limiter = Literal["threads", "registers", "shared", "blocks"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What fits on one SM. `blocks_per_sm` 0: the kernel cannot be launched, and `limiter` says why."""

    blocks_per_sm: int
    active_warps: int
    max_warps: int
    limiter: Limiter

    @property
    def fraction(self) -> float:
        """Active warps over the most an SM can hold."""
        return self.active_warps / self.max_warps


def occupancy(device: DeviceModel, *, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Occupancy of blocks of `threads` with `registers` a thread and `shared_bytes` (static + dynamic) a
    block."""
    limits = block_limits(device, threads=threads, registers=registers, shared_bytes=shared_bytes)
    limiter = min(limits, key=lambda name: limits[name])
    warps = -(-threads // WARP)
    return Occupancy(limits[limiter], limits[limiter] * warps, device.threads_per_sm // WARP, limiter)


def block_limits(device: DeviceModel, *, threads: int, registers: int, shared_bytes: int = 0) -> dict[Limiter, int]:
    """Blocks an SM could hold if one resource alone limited it."""
    warps = -(-threads // WARP)
    return {
        "threads": device.threads_per_sm // WARP // warps if 0 < threads <= MAX_THREADS else 0,
        "registers": _blocks_by_registers(device, warps, registers),
        "shared": _blocks_by_shared(device, shared_bytes),
        "blocks": device.blocks_per_sm,
    }


def clustered_sms(device: DeviceModel, cluster: int) -> int:
    """SMs that clusters of so many blocks can take: a cluster stays within a part of the chip (GPC), and parts differ
    in how many of their SMs work."""
    if cluster <= 2 or device.sms < GPC:
        return device.sms
    parts = device.sms // GPC - (SHORT_PARTS if cluster > PORTABLE_CLUSTER else 0)
    return max(1, parts) * (GPC // cluster * cluster)


def waves(device: DeviceModel, occupied: Occupancy, blocks: int) -> float:
    """How often the GPU is filled to run a grid; the fraction after the point is its tail."""
    if occupied.blocks_per_sm == 0:
        raise ValueError(f"a kernel that fits no SM ({occupied.limiter}) makes no waves")
    return blocks / (occupied.blocks_per_sm * device.sms)


def _blocks_by_registers(device: DeviceModel, warps: int, registers: int) -> int:
    if registers > MAX_REGISTERS:
        return 0
    per_warp = _round_up(max(registers, 1) * WARP, REGISTER_UNIT)
    warps_held = device.registers_per_sm // PARTITIONS // per_warp * PARTITIONS
    return warps_held // max(warps, 1)


def _blocks_by_shared(device: DeviceModel, shared_bytes: int) -> int:
    if shared_bytes > device.shared_per_block:
        return 0
    per_block = _round_up(shared_bytes + device.shared_reserved_per_block, device.shared_granularity)
    return device.shared_per_sm // per_block if per_block else device.blocks_per_sm


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
