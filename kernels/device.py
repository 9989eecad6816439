"""Device models: the limits and rates that validity checks and the cost model stand on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceModel:
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
    launch_us: float = 2.5
    source: str = ""


def model_for(arch: str, name: str | None = None) -> DeviceModel:
    """The model of a named device, else the reference device of an architecture."""
    for model in DEVICES:
        if name is not None and model.name == name:
            return model
    for model in DEVICES:
        if model.arch == arch:
            return model
    from warpsmith.kernels.errors import UserError

    known = ", ".join(sorted({model.arch for model in DEVICES}))
    raise UserError(f"unknown architecture {arch!r}: known are {known}; pass one with --arch")


DEVICES: tuple[DeviceModel, ...] = (
    DeviceModel(
        name="NVIDIA H200", arch="sm_90", sms=132, clock_hz=1.98e9, dram_bytes_per_s=4.3e12, l2_bytes=60 << 20,
        l2_bytes_per_s=1.0e13, fp32_flops=6.7e13, shared_per_sm=233472, shared_per_block=232448, max_cluster=8,
        source="copy rate and L2 measured on an H200; the rest from the datasheet",
    ),
)  # fmt: skip
