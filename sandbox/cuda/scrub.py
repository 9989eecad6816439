"""Overwrites what one launch could leave for the next: every multiprocessor's shared memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from warpsmith.sandbox.cuda import driver as cuda
from warpsmith.sandbox.cuda.arguments import parameter_array

_THREADS = 256
_MULTIPROCESSORS, _SHARED_OPTIN = 16, 97
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN."""
_PTX = b"""
.version 6.4
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 pool[];
.visible .entry scrub(.param .u32 bytes, .param .u32 word)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    ld.param.u32 %r1, [bytes];
    ld.param.u32 %r2, [word];
    mov.u32 %r3, %tid.x;
    shl.b32 %r4, %r3, 2;
    mov.u32 %r5, pool;
$next:
    setp.ge.u32 %p1, %r4, %r1;
    @%p1 bra $done;
    add.u32 %r6, %r5, %r4;
    st.volatile.shared.u32 [%r6], %r2;
    add.u32 %r4, %r4, 1024;
    bra $next;
$done:
    ret;
}
.visible .entry nothing()
{
    ret;
}
"""
"""PTX, which the driver turns into code of any later architecture; 1024 is `_THREADS` words of 4 bytes."""


class Scrubber:
    """Kernels of our own that stand between the runs of a candidate."""

    def __init__(self, device: torch.device) -> None:
        """Loads the module into the current context. Call it only where CUDA is initialised."""
        from cupy.cuda import function

        self._driver = cuda.driver()
        self._blocks = self._driver.attribute(device.index or 0, _MULTIPROCESSORS)
        self._bytes = self._driver.attribute(device.index or 0, _SHARED_OPTIN)
        self._module: Any = function.Module()
        self._module.load(_PTX)
        self._scrub = self._module.get_function("scrub")
        self._nothing = self._module.get_function("nothing")
        self._driver.set_function(self._scrub.ptr, cuda.FUNC_MAX_DYNAMIC_SHARED, self._bytes)

    def shared_memory(self, stream: int, word: int = 0xFFFFFFFF) -> None:
        """Enqueues one block a multiprocessor, each of which fills all shared memory that a block may have."""
        parameters = parameter_array([np.uint32(self._bytes), np.uint32(word)])
        self._launch(self._scrub, self._blocks, _THREADS, self._bytes, stream, parameters)

    def nothing(self, stream: int) -> None:
        """Enqueues an empty kernel: what is left of a timing when there is no work in it."""
        self._launch(self._nothing, 1, 32, 0, stream, parameter_array([]))

    def _launch(
        self, kernel: Any, blocks: int, threads: int, shared: int, stream: int,
        parameters: tuple[ctypes.Array[ctypes.c_void_p], list[Any]],
    ) -> None:  # fmt: skip
        addresses, _cells = parameters
        config = cuda.launch_config(
            grid=(blocks, 1, 1), block=(threads, 1, 1), cluster=(1, 1, 1), shared_bytes=shared, stream=stream,
            cooperative=False,
        )  # fmt: skip
        self._driver.launch(kernel.ptr, config, addresses)
