"""Kernels of our own from CUDA text: compiled when first asked for, launched on torch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.sandbox.cuda import driver as cuda
from warpsmith.sandbox.cuda.arguments import parameter_array
from warpsmith.sandbox.nvrtc import SUCCESS, load_nvrtc

Given = torch.Tensor | np.generic
"""An argument: a tensor stands for its address, a numpy scalar has its kernel's own type."""

_torch_cuda: Any = torch.cuda
"""Not every release of torch types its streams."""

LOAD_ERRORS = (EnvironmentError_, cuda.DriverError, RuntimeError, ImportError, OSError)
"""What making `OwnKernels` raises where a machine lacks NVRTC or cupy, or its driver does not take the code."""


class OwnKernels:
    """One text compiled for one device, into memory: nothing that a candidate could change lies on disk."""

    def __init__(self, source: str, options: Sequence[str], device: torch.device) -> None:
        """Compiles, which takes some 0.2 s, and loads into the current context. Call it only where CUDA is
        initialised. Raises one of `LOAD_ERRORS`."""
        from cupy.cuda import function

        major, minor = torch.cuda.get_device_capability(device)
        done = load_nvrtc().compile(source, options=(f"--gpu-architecture=sm_{major}{minor}", *options))
        if done.code != SUCCESS:
            raise EnvironmentError_(f"NVRTC does not compile our kernels for sm_{major}{minor}: {done.log.strip()}")
        self._device = device
        self._driver = cuda.driver()
        self._module: Any = function.Module()
        self._module.load(done.cubin)
        self._functions: dict[str, Any] = {}

    def launch(self, name: str, *, blocks: int, threads: int, arguments: Sequence[Given]) -> None:
        """Enqueues a kernel. DriverError where the context is ruined."""
        if name not in self._functions:
            self._functions[name] = self._module.get_function(name)
        addresses, _cells = parameter_array(
            [np.uint64(one.data_ptr()) if isinstance(one, torch.Tensor) else one for one in arguments]
        )
        config = cuda.launch_config(
            grid=(blocks, 1, 1), block=(threads, 1, 1), cluster=(1, 1, 1), shared_bytes=0,
            stream=_torch_cuda.current_stream(self._device).cuda_stream, cooperative=False,
        )  # fmt: skip
        self._driver.launch(self._functions[name].ptr, config, addresses)
