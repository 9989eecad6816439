"""Asks the CUDA driver in a process of its own what GPUs there are.

A process that has initialised CUDA can no longer fork workers that use it; so `probe` starts this file as a
program, which prints one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from warpsmith.sandbox.compile_client import worker_environment

PROBE_TIMEOUT_S = 60.0

ATTRIBUTES = {
    "clockRate": 13,
    "multiProcessorCount": 16,
    "memoryClockRate": 36,
    "memoryBusWidth": 37,
    "l2CacheSize": 38,
    "maxThreadsPerMultiProcessor": 39,
    "major": 75,
    "minor": 76,
    "sharedMemPerMultiprocessor": 81,
    "regsPerMultiprocessor": 82,
    "sharedMemPerBlockOptin": 97,
    "maxBlocksPerMultiProcessor": 106,
    "reservedSharedMemPerBlock": 111,
}
"""Names of `cudaDeviceProp` and the numbers of `CUdevice_attribute` in cuda.h."""


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What the driver said. `error` is None if it answered; the message of a missing driver otherwise."""

    error: str | None
    cuda_version: str | None
    """Newest CUDA version the driver supports, e.g. `13.0`."""
    devices: tuple[dict[str, int | str], ...]
    """Properties as `kernels.device.model_from_properties` takes them."""


def probe(timeout_s: float = PROBE_TIMEOUT_S) -> DriverFacts:
    """Ask the driver; no answer is also a DriverFacts."""
    command = [sys.executable, "-P", "-m", "warpsmith.sandbox.driver_probe"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | worker_environment(),
        )
        facts = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return DriverFacts(f"the driver gave no answer within {timeout_s:g} s", None, ())
    except ValueError:
        return DriverFacts(f"asking the driver ended with exit code {done.returncode}", None, ())
    return DriverFacts(facts["error"], facts["cuda_version"], tuple(facts["devices"]))


def ask_driver(library: str = "libcuda.so.1") -> dict[str, Any]:
    """Initialise the driver in this process and list its devices."""
    answer: dict[str, Any] = {"error": None, "cuda_version": None, "devices": []}
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return answer | {"error": f"no NVIDIA driver ({library} not found)"}
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        answer["cuda_version"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    code = cuda.cuInit(0)
    if code != 0:
        return answer | {"error": f"cuInit failed with {_error_name(cuda, code)}"}
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return answer | {"devices": [_properties(cuda, index) for index in range(count.value)]}


def _properties(cuda: ctypes.CDLL, index: int) -> dict[str, int | str]:
    device, name, value = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    found: dict[str, int | str] = {"name": name.value.decode(errors="replace")}
    for key, number in ATTRIBUTES.items():
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0:
            found[key] = value.value
    return found


def _error_name(cuda: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"code {code}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(ask_driver()))
