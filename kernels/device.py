"""Device models: the limits and rates that validity checks and the cost model stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels.hashed import HashKept, hash_kept

Unit = Literal["fp32", "tf32", "half"]
"""What computes: the ordinary cores, or the tensor cores in TF32 or 16-bit floats."""
_TENSOR_RATES: dict[Unit, int] = {"fp32": 1, "tf32": 8, "half": 16}
"""Upper bounds on the dense rate of tensor cores, in FP32 rates of the ordinary ones (A100: 8 and 16; H100, H200: 7.4
and 14.8, NVIDIA's datasheets); twice that from sm_100 on (B200: 14 and 28)."""


@hash_kept
@dataclass(frozen=True, slots=True)
class DeviceModel(HashKept):
    """One GPU. Bytes, bytes a second and hertz; rates are datasheet or measured, as `source` says."""

    name: str
    arch: str
    """Compute capability as NVRTC wants it, e.g. `sm_90`."""
    sms: int
    clock_hz: float
    dram_bytes_per_s: float
    """Achievable copy rate (read + write)."""
    l2_bytes: int
    l2_bytes_per_s: float
    fp32_flops: float
    shared_per_sm: int
    shared_per_block: int
    """Opt-in maximum of dynamic shared memory of one block."""
    registers_per_sm: int = 65536
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    max_cluster: int = 1
    """Blocks; above 8 the launcher opts in to a size that is not portable."""
    launch_us: float = 2.5
    source: str = ""
    shared_reserved_per_block: int = 1024
    """Shared memory that the driver keeps of every block; 0 before sm_80."""
    shared_granularity: int = 128
    """Bytes; shared memory of a block is rounded up to it (256 before sm_80)."""

    def most_flops(self, unit: Unit) -> float:
        """Operations a second that a unit does at most."""
        newest = 2 if unit != "fp32" and capability(self.arch) >= 100 else 1
        return newest * _TENSOR_RATES[unit] * self.fp32_flops


COPY_SHARE = 0.90
"""Achievable copy rate as a share of the datasheet's DRAM rate; refresh and read/write turnarounds cost the
rest. Measured on an H200: 4.3 of 4.8 TB/s; taken over to the others."""

L2_BYTES_PER_CLOCK_PER_SM = 38.0
"""What one SM gets from L2 in a clock when all of them read. Measured on an H200: 1.0e13 B/s over 132 SMs at
1.98 GHz; taken over to the others, whose SMs have a link of the same width (64 B)."""


def model_for(arch: str, name: str | None = None) -> DeviceModel:
    """The model of a named device, else the reference device of an architecture.

    A suffix for architecture-specific instructions (`sm_90a`) does not matter. Raises UserError if it is
    unknown.
    """
    for model in DEVICES:
        if name is not None and model.name == name:
            return model
    for model in DEVICES:
        if model.arch == arch.rstrip("af"):
            return model
    from warpsmith.kernels.errors import UserError

    known = ", ".join(sorted({model.arch for model in DEVICES}, key=lambda known: int(known[3:])))
    raise UserError(f"unknown architecture {arch!r}: known are {known}; pass one with --arch")


def model_from_properties(properties: Mapping[str, int | str | float]) -> DeviceModel:
    """A model of the GPU whose driver reported `properties`.

    Keys are those of `cudaDeviceProp`: `name`, `major`, `minor`, `multiProcessorCount`, `clockRate` (kHz),
    `memoryClockRate` (kHz), `memoryBusWidth` (bits), `l2CacheSize`, `sharedMemPerMultiprocessor`,
    `sharedMemPerBlockOptin`, `regsPerMultiprocessor`, `maxThreadsPerMultiProcessor`,
    `maxBlocksPerMultiProcessor`, `reservedSharedMemPerBlock`. The first four identify the device and must be
    there (KeyError); each other one that is missing is taken from a known device of that name or
    architecture.

    A known device keeps its measured rates; of an unknown one they follow from clocks and widths.
    """
    name, arch = str(properties["name"]), f"sm_{properties['major']}{properties['minor']}"
    sms = int(properties["multiProcessorCount"])
    like = _closest(name, arch)

    def number(key: str, otherwise: float) -> float:
        value = float(properties.get(key, 0))
        return value if value > 0 else otherwise

    known = like.name == name and like.sms == sms
    clock_hz = like.clock_hz if known else number("clockRate", like.clock_hz / 1e3) * 1e3
    dram = _dram_rate(properties) or like.dram_bytes_per_s * (sms * clock_hz) / (like.sms * like.clock_hz)
    reserved = int(properties.get("reservedSharedMemPerBlock", like.shared_reserved_per_block))
    return DeviceModel(
        name=name,
        arch=arch,
        sms=sms,
        clock_hz=clock_hz,
        dram_bytes_per_s=like.dram_bytes_per_s if known else dram,
        l2_bytes=int(number("l2CacheSize", like.l2_bytes)),
        l2_bytes_per_s=like.l2_bytes_per_s if known else L2_BYTES_PER_CLOCK_PER_SM * sms * clock_hz,
        fp32_flops=like.fp32_flops if known else 2.0 * fp32_lanes(arch) * sms * clock_hz,
        shared_per_sm=int(number("sharedMemPerMultiprocessor", like.shared_per_sm)),
        shared_per_block=int(number("sharedMemPerBlockOptin", like.shared_per_block)),
        registers_per_sm=int(number("regsPerMultiprocessor", like.registers_per_sm)),
        threads_per_sm=int(number("maxThreadsPerMultiProcessor", like.threads_per_sm)),
        blocks_per_sm=int(number("maxBlocksPerMultiProcessor", like.blocks_per_sm)),
        max_cluster=largest_cluster(arch),
        launch_us=like.launch_us,
        source=like.source if known else "limits reported by the driver, rates from its clocks and widths",
        shared_reserved_per_block=reserved,
        shared_granularity=128 if capability(arch) >= 80 else 256,
    )


def capability(arch: str) -> int:
    """`sm_90a` -> 90."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def largest_cluster(arch: str) -> int:
    """Blocks of a cluster at most: 16 where a kernel may opt in to more than the portable 8 (sm_90, sm_100 and sm_103),
    1 without clusters. The GeForce and RTX PRO cards of sm_120 have clusters too, but no room for long rows in them."""
    if capability(arch) in (90, 100, 103):
        return 16
    return 8 if 90 < capability(arch) < 120 else 1


def fp32_lanes(arch: str) -> int:
    """FP32 units of one SM: 64 up to sm_80, 128 after it (CUDA C++ Programming Guide, throughput table)."""
    return 64 if capability(arch) <= 80 else 128


def _closest(name: str, arch: str) -> DeviceModel:
    """The device of that name, else of that architecture, else of the nearest older one."""
    for model in DEVICES:
        if model.name == name:
            return model
    older = [model for model in DEVICES if capability(model.arch) <= capability(arch)]
    return max(older, key=lambda model: capability(model.arch)) if older else DEVICES[-1]


def _dram_rate(properties: Mapping[str, int | str | float]) -> float:
    """Copy rate from memory clock (two transfers each, as CUDA counts it) and bus width; 0 if not
    reported."""
    clock_khz, bits = float(properties.get("memoryClockRate", 0)), float(properties.get("memoryBusWidth", 0))
    return COPY_SHARE * 2.0 * clock_khz * 1e3 * bits / 8.0


def _datasheet(
    name: str, arch: str, *, sms: int, clock_ghz: float, dram_gb_per_s: float, l2_mib: int,
    shared_kib: tuple[int, int], threads_per_sm: int = 2048, blocks_per_sm: int = 32, max_cluster: int = 1,
    reserved: int = 1024, source: str,
) -> DeviceModel:  # fmt: skip
    """A device known from documents only. `shared_kib`: of an SM and, opt-in, of a block; boost clock."""
    clock_hz = clock_ghz * 1e9
    return DeviceModel(
        name=name,
        arch=arch,
        sms=sms,
        clock_hz=clock_hz,
        dram_bytes_per_s=COPY_SHARE * dram_gb_per_s * 1e9,
        l2_bytes=l2_mib << 20,
        l2_bytes_per_s=L2_BYTES_PER_CLOCK_PER_SM * sms * clock_hz,
        fp32_flops=2.0 * fp32_lanes(arch) * sms * clock_hz,
        shared_per_sm=shared_kib[0] << 10,
        shared_per_block=shared_kib[1] << 10,
        threads_per_sm=threads_per_sm,
        blocks_per_sm=blocks_per_sm,
        max_cluster=max_cluster,
        source=source,
        shared_reserved_per_block=reserved,
        shared_granularity=128 if reserved else 256,
    )


_LIMITS = "limits: CUDA C++ Programming Guide, technical specifications per compute capability; rates: "

DEVICES: tuple[DeviceModel, ...] = (
    DeviceModel(
        name="NVIDIA H200", arch="sm_90", sms=132, clock_hz=1.98e9, dram_bytes_per_s=4.3e12,
        l2_bytes=60 << 20, l2_bytes_per_s=1.0e13, fp32_flops=6.7e13, shared_per_sm=233472,
        shared_per_block=232448, max_cluster=16,
        source="copy rate and L2 measured on an H200; the rest from the datasheet",
    ),
    _datasheet(
        "NVIDIA H100 80GB HBM3", "sm_90", sms=132, clock_ghz=1.98, dram_gb_per_s=3350, l2_mib=50,
        shared_kib=(228, 227), max_cluster=16, source=_LIMITS + "NVIDIA H100 datasheet (SXM5)",
    ),
    _datasheet(
        "NVIDIA A100-SXM4-80GB", "sm_80", sms=108, clock_ghz=1.41, dram_gb_per_s=2039, l2_mib=40,
        shared_kib=(164, 163), source=_LIMITS + "NVIDIA A100 datasheet (80 GB SXM)",
    ),
    _datasheet(
        "NVIDIA A100-SXM4-40GB", "sm_80", sms=108, clock_ghz=1.41, dram_gb_per_s=1555, l2_mib=40,
        shared_kib=(164, 163), source=_LIMITS + "NVIDIA A100 datasheet (40 GB SXM)",
    ),
    _datasheet(
        "NVIDIA GeForce RTX 3090", "sm_86", sms=82, clock_ghz=1.695, dram_gb_per_s=936, l2_mib=6,
        shared_kib=(100, 99), threads_per_sm=1536, blocks_per_sm=16,
        source=_LIMITS + "NVIDIA Ampere GA102 architecture white paper",
    ),
    _datasheet(
        "NVIDIA GeForce RTX 4090", "sm_89", sms=128, clock_ghz=2.52, dram_gb_per_s=1008, l2_mib=72,
        shared_kib=(100, 99), threads_per_sm=1536, blocks_per_sm=24,
        source=_LIMITS + "NVIDIA Ada GPU architecture white paper",
    ),
    _datasheet(
        "NVIDIA L40S", "sm_89", sms=142, clock_ghz=2.52, dram_gb_per_s=864, l2_mib=96, shared_kib=(100, 99),
        threads_per_sm=1536, blocks_per_sm=24, source=_LIMITS + "NVIDIA L40S datasheet",
    ),
    _datasheet(
        "NVIDIA B200", "sm_100", sms=148, clock_ghz=1.965, dram_gb_per_s=8000, l2_mib=126,
        shared_kib=(228, 227), max_cluster=16, source=_LIMITS + "NVIDIA Blackwell datasheet (HGX B200)",
    ),
    _datasheet(
        "Tesla T4", "sm_75", sms=40, clock_ghz=1.59, dram_gb_per_s=320, l2_mib=4, shared_kib=(64, 64),
        threads_per_sm=1024, blocks_per_sm=16, reserved=0, source=_LIMITS + "NVIDIA T4 datasheet",
    ),
)  # fmt: skip
