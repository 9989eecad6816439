"""What NVML says of a device while it is timed: clocks, heat, power, and why it runs below its best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

SLOWED = {0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
          0x80: "power brake"}  # fmt: skip
"""NVML clock-event reasons (nvml.h) under which samples say nothing about a kernel."""
LIMITED = {0x4: "power cap", 0x10: "sync boost"}
"""Reasons that are common under full load: recorded, not held against the samples."""


def slowed_by(reasons: int) -> str | None:
    """The first of these reasons for which times are not believed."""
    return next((text for bit, text in SLOWED.items() if reasons & bit), None)


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the device."""

    sm_mhz: int
    memory_mhz: int
    celsius: int
    watts: float
    reasons: int
    """Bits of NVML's clock-event reasons."""


class Health:
    """Readings of one device; without NVML there are none."""

    def __init__(self, handle: Any, library: Any) -> None:
        self._handle = handle
        self._nvml = library

    @classmethod
    def of(cls, uuid: str) -> Self:
        """For a device by its 32 hex digits. What NVML refuses is no error: nothing is read then."""
        try:
            import pynvml

            pynvml.nvmlInit()
            name = f"GPU-{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
            return cls(pynvml.nvmlDeviceGetHandleByUUID(name), pynvml)
        except Exception:  # NVML's errors have no common base where its library is missing
            return cls(None, None)

    @property
    def known(self) -> bool:
        """Whether this machine gives readings."""
        return self._handle is not None

    def read(self) -> Reading | None:
        """Now; None where a figure is not to be had."""
        if self._handle is None:
            return None
        nvml, handle = self._nvml, self._handle
        try:
            return Reading(
                sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                memory_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
                celsius=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                watts=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
                reasons=nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            )
        except nvml.NVMLError:
            return None

    def slowed(self) -> str | None:
        """Why times taken now are not believed: one quick question instead of a whole reading."""
        if self._handle is None:
            return None
        try:
            reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except self._nvml.NVMLError:
            return None
        return slowed_by(reasons)

    def strangers(self) -> int:
        """How many processes beside this one compute on the device, as far as NVML tells."""
        if self._handle is None:
            return 0
        try:
            return max(0, len(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) - 1)
        except self._nvml.NVMLError:
            return 0
