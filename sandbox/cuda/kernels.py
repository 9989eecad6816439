"""A candidate's kernels by name, and what enqueues a step of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.records import KernelStep, LaunchPlan, LibraryStep
from warpsmith.sandbox.backend import Argument
from warpsmith.sandbox.cuda import driver as cuda
from warpsmith.sandbox.cuda.arguments import Parameter, pack, parameter_array
from warpsmith.sandbox.cuda.bound import Launch, LaunchRefused
from warpsmith.sandbox.cuda.library import library_call

_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: the loaded module that holds it, one of cupy, and what it takes."""

    module: Any
    parameters: tuple[Parameter, ...]


class Kernels:
    """Of the modules of a candidate. Knows nothing of its memory: what this makes is kept beside that, and memory that
    is held in a circle stays until Python happens to look for circles, a candidate's after a candidate's."""

    def __init__(
        self, driver: cuda.Driver, stream: Any, entries: Mapping[str, Entry], plan: LaunchPlan
    ) -> None:  # fmt: skip
        """`stream` is where kernels are launched, a stream of torch."""
        self._driver = driver
        self._stream = stream
        self._entries = entries
        self._plan = plan
        self._functions: dict[str, Any] = {}

    def launcher(self, step: KernelStep | LibraryStep, values: Mapping[str, Argument]) -> Launch:
        """What enqueues the step on these values. LaunchRefused, ArgumentError or LibraryError if it does not fit."""
        if isinstance(step, LibraryStep):
            return library_call(step, values)
        if min(*step.grid, *step.block, *step.cluster) < 1 or step.shared_bytes < 0:
            raise LaunchRefused(f"{step.kernel}: grid, block and cluster sizes start at 1", "launch_config")
        if max(*step.grid, *step.block, *step.cluster, step.shared_bytes) > _MOST:
            # A larger one would be cut to 32 bits on its way to the driver.
            raise LaunchRefused(f"{step.kernel}: no size of a launch is above {_MOST}", "launch_config")
        if step.kernel not in self._entries:
            raise LaunchRefused(f"the module has no kernel {step.kernel!r}", "no_entry")
        function = self._function(step)
        packed = pack(step.args, self._entries[step.kernel].parameters, values)
        stream = self._stream.cuda_stream
        if step.cluster == (1, 1, 1) and not step.cooperative:
            handle = _cupy_stream(stream)

            def run() -> None:
                function(step.grid, step.block, packed, step.shared_bytes, handle)

            return run
        addresses, cells = parameter_array(packed)
        config = cuda.launch_config(
            grid=step.grid, block=step.block, cluster=step.cluster, shared_bytes=step.shared_bytes,
            stream=stream, cooperative=step.cooperative,
        )  # fmt: skip

        driver = self._driver

        def run_extended(keep: object = cells) -> None:
            driver.launch(function.ptr, config, addresses)

        return run_extended

    def _function(self, step: KernelStep) -> Any:
        """The kernel's handle, with the attributes set that this step needs, and others of its kernel."""
        if step.kernel not in self._functions:
            self._functions[step.kernel] = self._entries[step.kernel].module.get_function(step.kernel)
        function = self._functions[step.kernel]
        set_function = self._driver.set_function
        try:
            kind = "shared_memory"
            if step.shared_bytes:
                most = max(one.shared_bytes for one in self._plan.launches_of(step.kernel))
                set_function(function.ptr, cuda.FUNC_MAX_DYNAMIC_SHARED, most)
            kind = "cluster"
            if step.cluster[0] * step.cluster[1] * step.cluster[2] > 8:
                set_function(function.ptr, cuda.FUNC_NON_PORTABLE_CLUSTER, 1)
        except cuda.DriverError as error:
            what = f"{step.kernel}: {step.shared_bytes} bytes of shared memory, cluster {step.cluster}"
            raise LaunchRefused(f"{what}: {error}", kind) from None
        return function


class _StreamHandle:
    """A stream of torch as cupy's stream protocol sees it."""

    def __init__(self, pointer: int) -> None:
        self.ptr = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def _cupy_stream(pointer: int) -> Any:
    """cupy's view of a stream that it does not own (cupy 14 renamed the way to make one)."""
    from cupy.cuda import stream

    if hasattr(stream.Stream, "from_external"):
        return stream.Stream.from_external(_StreamHandle(pointer))
    return stream.ExternalStream(pointer)
