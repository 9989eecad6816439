"""The part of the CUDA driver API that cupy does not offer, through ctypes on libcuda.so.1."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from warpsmith.kernels.errors import EnvironmentError_

FUNC_MAX_DYNAMIC_SHARED = 8
FUNC_NON_PORTABLE_CLUSTER = 14
LIMIT_PRINTF_FIFO = 1
LIMIT_MALLOC_HEAP = 2
LIMIT_PERSISTING_L2 = 6
_ATTRIBUTE_COOPERATIVE = 2
_ATTRIBUTE_CLUSTER = 4

STICKY = {
    214: "uncorrectable_ecc", 700: "illegal_address", 702: "launch_timeout", 710: "device_assert",
    714: "hardware_stack_error", 715: "illegal_instruction", 716: "misaligned_address",
    717: "invalid_address_space", 718: "invalid_pc", 719: "launch_failed",
}  # fmt: skip
"""CUresult values after which a context answers nothing but the same error, with the short kind that we
report."""


class Dim3(ctypes.Structure):
    """Three unsigned sizes."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class AttributeValue(ctypes.Union):
    """CUlaunchAttributeValue: 64 bytes, of which we use two members."""

    _fields_ = (("pad", ctypes.c_uint64 * 8), ("cluster", Dim3), ("cooperative", ctypes.c_int))


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: the id padded to 8 bytes, then the value."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", AttributeValue))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", Dim3),
        ("block", Dim3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


class DriverError(Exception):
    """A driver call gave something other than CUDA_SUCCESS."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Driver:
    """Calls of libcuda by name, with the status checked."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise EnvironmentError_(f"no NVIDIA driver here ({error}): use --device cpu") from error
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function; DriverError with the driver's own text for anything but success. Integers that
        do not fit 32 bits must come as ctypes values."""
        code = int(getattr(self._library, name)(*arguments))
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            detail = (text.value or b"unknown error").decode()
            raise DriverError(code, f"{name}: {detail} (CUDA error {code})")

    def sticky(self) -> tuple[str, str] | None:
        """Kind and text of the error that has ruined the current context, if one has. Waits for the
        device."""
        try:
            self.call("cuCtxSynchronize")
        except DriverError as error:
            return STICKY.get(error.code, "cuda_error"), str(error)
        return None

    def set_function(self, function: int, attribute: int, value: int) -> None:
        """Sets a CUfunction_attribute."""
        self.call("cuFuncSetAttribute", ctypes.c_void_p(function), attribute, value)

    def set_limit(self, limit: int, value: int) -> bool:
        """Sets a context limit; False where this device or driver refuses the value."""
        try:
            self.call("cuCtxSetLimit", limit, ctypes.c_size_t(value))
        except DriverError:
            return False
        return True

    def reset_persisting_l2(self) -> None:
        """Turns lines that are set to stay in L2 into ordinary ones; nothing where the device has none."""
        with contextlib.suppress(DriverError):
            self.call("cuCtxResetPersistingL2Cache")

    def launch(self, function: int, config: LaunchConfig, parameters: ctypes.Array[ctypes.c_void_p]) -> None:
        """cuLaunchKernelEx: what cluster and cooperative launches need."""
        self.call("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(function), parameters, None)

    def attribute(self, device: int, attribute: int) -> int:
        """A CUdevice_attribute."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def version(self) -> str:
        """The newest CUDA version that the driver supports, e.g. `13.0`."""
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def name(self, device: int) -> str:
        """The device's name, e.g. `NVIDIA H200`."""
        buffer = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", buffer, 256, device)
        return buffer.value.decode()

    def memory(self, device: int) -> int:
        """The device's memory in bytes."""
        value = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(value), device)
        return value.value

    def uuid(self, device: int) -> str:
        """The device's UUID as 32 hex digits."""
        buffer = ctypes.create_string_buffer(16)
        self.call("cuDeviceGetUuid_v2", buffer, device)
        return buffer.raw.hex()


@functools.cache
def driver() -> Driver:
    """The process's one driver handle. Call it only where a GPU may be initialised: never before a fork."""
    return Driver()


def launch_config(
    *,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int],
    shared_bytes: int,
    stream: int,
    cooperative: bool,
) -> LaunchConfig:
    """A CUlaunchConfig with the attributes that are not trivial. It keeps its attribute array alive."""
    attributes: list[LaunchAttribute] = []
    if tuple(cluster) != (1, 1, 1):
        value = AttributeValue(cluster=Dim3(*cluster))
        attributes.append(LaunchAttribute(id=_ATTRIBUTE_CLUSTER, value=value))
    if cooperative:
        attributes.append(LaunchAttribute(id=_ATTRIBUTE_COOPERATIVE, value=AttributeValue(cooperative=1)))
    array = (LaunchAttribute * max(1, len(attributes)))(*attributes)
    return LaunchConfig(
        grid=Dim3(*grid), block=Dim3(*block), shared_bytes=shared_bytes, stream=stream,
        attributes=ctypes.cast(array, ctypes.POINTER(LaunchAttribute)), attribute_count=len(attributes),
    )  # fmt: skip
