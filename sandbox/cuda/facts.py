"""What the driver says of a GPU: identity, limits and rates, as a DeviceModel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warpsmith.kernels.device import DEVICES, DeviceModel
from warpsmith.sandbox.cuda.driver import Driver, driver

_CLOCK_KHZ, _SMS, _MEMORY_KHZ, _BUS_BITS, _L2 = 13, 16, 36, 37, 38
_THREADS_PER_SM, _MAJOR, _MINOR = 39, 75, 76
_SHARED_PER_SM, _REGISTERS_PER_SM, _SHARED_OPTIN, _BLOCKS_PER_SM, _CLUSTERS = 81, 82, 97, 106, 120
_COPY_SHARE = 0.9
"""Share of the pin rate that a copy reaches; 0.9 on the H200 (4.3 of 4.8 TB/s)."""
_L2_OVER_DRAM = 2.3
"""Rate of L2 over that of memory; measured on an H200."""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Which device, and under which driver."""

    name: str
    uuid: str
    driver: str
    arch: str


def identity(index: int = 0, cuda: Driver | None = None) -> GpuIdentity:
    """Identity of a visible device."""
    cuda = cuda or driver()
    major, minor = cuda.attribute(index, _MAJOR), cuda.attribute(index, _MINOR)
    return GpuIdentity(cuda.name(index), cuda.uuid(index), cuda.version(), f"sm_{major}{minor}")


def device_model(index: int = 0) -> DeviceModel:
    """Limits as the driver reports them; rates measured where this device is known, else from clocks and
    widths."""
    cuda = driver()
    who = identity(index, cuda)
    sms, clock = cuda.attribute(index, _SMS), cuda.attribute(index, _CLOCK_KHZ) * 1e3
    dram = 2 * cuda.attribute(index, _MEMORY_KHZ) * 1e3 * cuda.attribute(index, _BUS_BITS) / 8 * _COPY_SHARE
    reported = DeviceModel(
        name=who.name, arch=who.arch, sms=sms, clock_hz=clock, dram_bytes_per_s=dram,
        l2_bytes=cuda.attribute(index, _L2), l2_bytes_per_s=dram * _L2_OVER_DRAM,
        fp32_flops=sms * fp32_lanes(who.arch) * 2 * clock,
        shared_per_sm=cuda.attribute(index, _SHARED_PER_SM),
        shared_per_block=cuda.attribute(index, _SHARED_OPTIN),
        registers_per_sm=cuda.attribute(index, _REGISTERS_PER_SM),
        threads_per_sm=cuda.attribute(index, _THREADS_PER_SM),
        blocks_per_sm=cuda.attribute(index, _BLOCKS_PER_SM),
        max_cluster=8 if cuda.attribute(index, _CLUSTERS) else 1,
        source="limits, clocks and widths as the driver reports them",
    )  # fmt: skip
    for known in DEVICES:
        if known.name == who.name:
            return replace(
                reported, dram_bytes_per_s=known.dram_bytes_per_s, l2_bytes_per_s=known.l2_bytes_per_s,
                fp32_flops=known.fp32_flops, launch_us=known.launch_us,
                source=f"limits as the driver reports them; rates: {known.source}",
            )  # fmt: skip
    return reported


def fp32_lanes(arch: str) -> int:
    """FP32 operations an SM starts per clock (CUDA C++ Programming Guide, arithmetic throughput)."""
    return 64 if arch in ("sm_70", "sm_72", "sm_75", "sm_80") else 128
