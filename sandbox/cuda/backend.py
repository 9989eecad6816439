"""Runs candidates on an NVIDIA GPU: cupy loads the cubin, launches go to a stream of ours, every status is
checked."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels.errors import DeviceLost, EnvironmentError_
from warpsmith.kernels.records import CompileReport, Failure, LaunchPlan
from warpsmith.sandbox import process
from warpsmith.sandbox.backend import (
    SCRATCH_DTYPES,
    Argument,
    LaunchResult,
    load_time_buffers,
    load_time_changed,
    with_views,
)
from warpsmith.sandbox.cuda import driver as cuda
from warpsmith.sandbox.cuda.arguments import ArgumentError, entry_parameters
from warpsmith.sandbox.cuda.bound import Bound, Launch, LaunchFailed, LaunchRefused
from warpsmith.sandbox.cuda.deadline import launch_timeout_s as usual_timeout_s
from warpsmith.sandbox.cuda.health import Health
from warpsmith.sandbox.cuda.kernels import Entry, Kernels
from warpsmith.sandbox.cuda.left_outputs import LeftOutputs, left_outputs
from warpsmith.sandbox.cuda.leftovers import Leftovers
from warpsmith.sandbox.cuda.library import LibraryError, library_result
from warpsmith.sandbox.cuda.memory import hold_to_limit
from warpsmith.sandbox.cuda.recording import Recording, Replayed, key_of
from warpsmith.sandbox.cuda.scrub import Scrubber
from warpsmith.sandbox.cuda.variables import Variables
from warpsmith.sandbox.results import Results, result_names

_torch_cuda: Any = torch.cuda
"""Not every release of torch types its streams and events."""

_MOST_BYTES = 1 << 48
"""No device's memory is larger, and torch refuses what does not fit 64 bits in other words."""


class CudaBackend:
    """One GPU. To be made after the last fork of its process: it initialises CUDA, and makes its own stream
    the current one of the calling thread, so that inputs, launches and comparisons follow each other."""

    def __init__(self, index: int = 0, *, launch_timeout_s: float | None = None) -> None:
        if not torch.cuda.is_available():
            raise EnvironmentError_(
                "torch sees no GPU: install a CUDA build of torch that fits the driver, or use --device cpu"
            )
        try:
            from cupy.cuda import function
        except ImportError as error:
            raise EnvironmentError_(
                f"cupy is not usable ({error}): install cupy-cuda13x (or cupy-cuda12x), never both"
            ) from error
        self._module_class: Any = function.Module
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(index)
        torch.empty(1, device=self.torch_device)
        hold_to_limit(self.torch_device)
        self.driver = cuda.driver()
        self.driver.set_limit(cuda.LIMIT_PRINTF_FIFO, 1 << 16)
        self.driver.set_limit(cuda.LIMIT_MALLOC_HEAP, 0)
        self.driver.set_limit(cuda.LIMIT_PERSISTING_L2, 0)
        self.label = f"gpu:{torch.cuda.get_device_name(index)}"
        self.stream: Any = _torch_cuda.Stream(self.torch_device)
        torch.cuda.set_stream(self.stream)
        self.launch_timeout_s = launch_timeout_s or usual_timeout_s()
        self.scrubber = Scrubber(self.torch_device)
        self.health = Health.of(self.driver.uuid(index))
        self._leftovers = Leftovers(self.torch_device, self.driver)
        self._newest: tuple[Any, ...] = ()

    def load(self, report: CompileReport, plan: LaunchPlan) -> LoadedCuda:
        """Loads the cubins. What is wrong with a module shows at the launch, as a failure."""
        # Unloading a module waits for its kernels: one that hangs must outlive the report about it.
        modules = self._newest = tuple(self._module_class() for _ in report.modules)
        entries: dict[str, Entry] = {}
        variables: list[Variables] = []
        failure = None
        for module, made, ptx in zip(modules, report.modules, report.ptx_texts(), strict=True):
            entries |= {name: Entry(module, found) for name, found in entry_parameters(ptx).items()}
            cubin = Path(made.cubin_path).read_bytes()
            try:
                module.load(cubin)
                variables.append(Variables(self.driver, module.ptr, cubin, self.stream.cuda_stream))
            except (RuntimeError, cuda.DriverError) as error:
                failure = Failure(stage="launch", kind="module", message=f"the module does not load: {error}")
                break
        return LoadedCuda(self, entries, plan, failure, variables)

    def forget(self) -> None:
        """Enqueues writes over all that a kernel could find of earlier work: memory that torch holds free, every
        multiprocessor's shared memory, lines set to stay in L2."""
        stream = self.stream.cuda_stream
        self._leftovers.wipe(stream)
        self.scrubber.shared_memory(stream)
        self.driver.reset_persisting_l2()

    def capturing(self) -> bool:
        """Whether what is enqueued on the current stream is being recorded as a graph."""
        return torch.cuda.is_current_stream_capturing()

    def recorded(self, enqueue: Launch) -> Launch:
        """Replays what `enqueue` enqueues on our stream, as a CUDA graph. RuntimeError where some of it cannot be
        recorded; this process must not go on then, as torch's allocator does not get over a capture that broke off."""
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads of this process may take memory meanwhile.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                enqueue()
        except Exception:
            process.retire()
            raise
        return graph.replay

    def finish(self) -> Failure | None:
        """Waits for our stream under the launch deadline. After a failure this process must not go on."""
        done = _torch_cuda.Event()
        deadline = time.monotonic() + self.launch_timeout_s
        try:
            done.record(self.stream)
            for turn in itertools.count():
                if done.query():
                    return None
                if time.monotonic() > deadline:
                    process.retire()
                    message = f"no end after {self.launch_timeout_s:g} s"
                    return Failure(stage="launch", kind="hang", message=message)
                if turn > 100:
                    time.sleep(20e-6)
        except RuntimeError as error:
            return self.ruined(error)
        return None

    def ruined(self, error: Exception) -> Failure:
        """The failure that an error of torch or cupy stands for. If it is a sticky one of CUDA, this process is
        marked as not to be used again."""
        found = self.driver.sticky()
        if found is None:
            text = str(error).splitlines() or [type(error).__name__]
            return Failure(stage="launch", kind="runtime_error", message=text[0])
        process.retire()
        kind, message = found
        if kind == "uncorrectable_ecc":
            raise DeviceLost(message)
        return Failure(stage="launch", kind=kind, message=message)


class LoadedCuda:
    """A loaded candidate with its scratch buffers."""

    def __init__(
        self,
        backend: CudaBackend,
        entries: Mapping[str, Entry],
        plan: LaunchPlan,
        failure: Failure | None,
        variables: Sequence[Variables] = (),
    ) -> None:
        self.backend = backend
        self.plan = plan
        self._failure = failure
        self.variables = variables
        self._kernels = Kernels(backend.driver, backend.stream, entries, plan)
        self._scratch: dict[str, torch.Tensor] = {}
        self._own = [name for name in plan.buffers if name not in result_names(plan)]
        self._prepared: dict[str, torch.Tensor] = {}
        self._launched = False
        self._recording: Recording | None = None
        self._poison = 0xFF

    def launch(self, arguments: Mapping[str, Argument], *, poison: int, again: bool = False) -> LaunchResult:
        """Runs the plan once and waits. See `Loaded` for what `arguments` and `poison` mean."""
        if self._failure is not None:
            return LaunchResult(failure=self._failure)
        try:
            with torch.cuda.stream(self.backend.stream):
                self.backend.stream.wait_stream(_torch_cuda.default_stream(self.backend.torch_device))
                bound = self.bind(arguments)
                self.backend.forget()
                if again and self._launched:
                    self._restore_variables()
                    self._poison_recording(poison)
                else:
                    self.fill_scratch(poison)
                    bound.prepare()
                self._launched = True
                self.keep_prepared()
                bound.enqueue()
        except LaunchFailed as error:
            return LaunchResult(failure=error.failure)
        except (LaunchRefused, ArgumentError, LibraryError) as error:
            kind = error.kind if isinstance(error, LaunchRefused) else "arguments"
            refused = Failure(stage="launch", kind=kind, message=str(error))
            return LaunchResult(failure=self.backend.finish() or refused)
        except torch.cuda.OutOfMemoryError as error:
            message = f"no room for the scratch buffers: {str(error).splitlines()[0]}"
            return LaunchResult(failure=Failure(stage="launch", kind="out_of_memory", message=message))
        except (RuntimeError, cuda.DriverError) as error:
            return LaunchResult(failure=self.backend.ruined(error))
        return LaunchResult(failure=self.backend.finish() or self._state_kept() or self.guards_kept())

    def release(self) -> None:
        """Lets go of scratch buffers. The next launch begins anew, also with `again`."""
        self._scratch.clear()
        self._prepared = {}
        # Its graph holds the addresses of what is let go of, where others' memory may lie soon.
        self._recording = None
        self._launched = False

    def _state_kept(self) -> Failure | None:
        """The failure of steps that have changed what load-time steps had written."""
        with torch.cuda.stream(self.backend.stream):
            changed = [name for name, kept in self._prepared.items() if not torch.equal(kept, self._bytes_of(name))]
        self._prepared = {}
        return load_time_changed(changed) if changed else None

    def guards_kept(self) -> Failure | None:
        """The failure of steps that have written beside the outputs that a graph writes to."""
        with torch.cuda.stream(self.backend.stream):
            broken = self._recording.broken() if self._recording is not None else []
        if not broken:
            return None
        return Failure(stage="verify", kind="guard", message=f"the kernel writes outside of {', '.join(broken)}")

    def fill_scratch(self, poison: int) -> None:
        """Fills scratch as the plan wants it, on the current stream; module variables get their first contents back."""
        self._restore_variables()
        self._poison_recording(poison)
        for name in self._own:
            self._bytes_of(name).fill_(0 if self.plan.buffers[name].init == "zero" else poison)

    def keep_prepared(self) -> None:
        """Copies what the load-time steps have written, for `refresh_scratch`."""
        self._prepared = {name: self._bytes_of(name).clone() for name in load_time_buffers(self.plan)}

    def refresh_scratch(self, poison: int) -> None:
        """Scratch and module variables as they were before the first run, on the current stream: load-time results
        restored, all other scratch poisoned."""
        self._restore_variables()
        self._poison_recording(poison)
        for name in self._own:
            kept = self._prepared.get(name)
            if kept is None:
                self._bytes_of(name).fill_(poison)
            else:
                self._bytes_of(name).copy_(kept)

    def renew(self) -> None:
        """As before the first run, nothing being left of one that was made for recording."""
        self.refresh_scratch(self._poison)
        self.backend.forget()

    def _poison_recording(self, poison: int) -> None:
        self._poison = poison
        if self._recording is not None:
            self._recording.poison(poison)

    def _restore_variables(self) -> None:
        for variables in self.variables:
            variables.restore(torch.cuda.current_stream(self.backend.torch_device).cuda_stream)

    def bind(self, arguments: Mapping[str, Argument]) -> Bound:
        """The plan with its arguments packed, ready to be enqueued many times. Raises LaunchRefused,
        ArgumentError or LibraryError where a step does not fit."""
        if not self.plan.graph:
            return self._bind_steps(arguments)
        used = self.plan.operands
        arguments = {name: value for name, value in arguments.items() if name in used}
        if self._recording is None or self._recording.key != key_of(arguments):
            # First, so that the memory of one is there for the other.
            self._recording = None
            self._recording = Recording(arguments, self._bind_steps)
            self._recording.poison(self._poison)
        directly = partial(self._bind_steps, arguments)
        return Replayed(self._recording, arguments, device=self.backend, state=self, directly=directly)

    def _bind_steps(self, arguments: Mapping[str, Argument]) -> Bound:
        values: dict[str, Argument] = dict(arguments)
        values |= {name: self._tensor_of(name) for name in self._own}
        try:
            values = with_views(self.plan, values)
        except ValueError as error:
            raise LaunchRefused(str(error), "arguments") from error
        zeroed = [name for name, buffer in self.plan.buffers.items() if buffer.init == "zero"]
        prepare = [self._kernels.launcher(step, values) for step in self.plan.prepare]
        steps: list[Launch] = [self._bytes_of(name).zero_ for name in zeroed]
        left = LeftOutputs(left_outputs(self.plan), values)
        steps += Results(self.plan).launches(
            self.plan.steps, left.binding(self._kernels.launcher),
            lambda step, there, like: library_result(step, {**values, **there}, like),
        )  # fmt: skip
        return Bound(prepare, steps, left.deliver)

    def _bytes_of(self, name: str) -> torch.Tensor:
        if name not in self._scratch:
            buffer = self.plan.buffers[name]
            count = _dtype(buffer.dtype).itemsize
            for size in buffer.shape:
                count *= size
            if count > _MOST_BYTES:
                raise LaunchRefused(f"no room for the scratch buffer {name}: it takes {count:,} bytes", "out_of_memory")
            self._scratch[name] = torch.empty(count, dtype=torch.uint8, device=self.backend.torch_device)
        return self._scratch[name]

    def _tensor_of(self, name: str) -> torch.Tensor:
        buffer = self.plan.buffers[name]
        return self._bytes_of(name).view(_dtype(buffer.dtype)).view(buffer.shape)


def _dtype(name: str) -> torch.dtype:
    if name not in SCRATCH_DTYPES:
        raise LaunchRefused(f"no dtype of a buffer is called {name!r}", "arguments")
    return SCRATCH_DTYPES[name]
