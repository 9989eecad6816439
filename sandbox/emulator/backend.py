"""The emulator as a backend: plans of PTX kernels and ATen calls on CPU tensors, without copies."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from warpsmith.kernels.records import CompileReport, Counters, Failure, KernelStep, LaunchPlan, LibraryStep
from warpsmith.sandbox.backend import (
    SCRATCH_DTYPES,
    Argument,
    LaunchResult,
    load_time_buffers,
    load_time_changed,
    with_views,
)
from warpsmith.sandbox.cuda.arguments import ArgumentError, Parameter, pack
from warpsmith.sandbox.cuda.library import LibraryError, library_call, library_result
from warpsmith.sandbox.emulator.grid import Disorder, Shape
from warpsmith.sandbox.emulator.launch import DEFAULT_STEP_LIMIT, Run, run_kernel
from warpsmith.sandbox.emulator.limits import check_scratch, check_step
from warpsmith.sandbox.emulator.machine import Checks
from warpsmith.sandbox.emulator.program import Kernel, compile_kernel, parse_cached
from warpsmith.sandbox.emulator.ptx import Module, PtxError, Refused, Variable
from warpsmith.sandbox.emulator.regions import Region
from warpsmith.sandbox.emulator.vectors import Array
from warpsmith.sandbox.results import like, named_on

REORDERED = "blocks ran in another order"
"""Note of a launch whose results may differ from those of the launch before for this reason alone."""
_MOST_BLOCKS = 1 << 31
"""A launch of more would not end, on a device neither."""


class EmulatorBackend:
    """Runs candidates on the CPU, one PTX instruction of many threads at a time."""

    def __init__(
        self,
        arch: str = "sm_90",
        *,
        check_races: bool = True,
        check_uninitialized: bool = True,
        step_limit: int = DEFAULT_STEP_LIMIT,
    ) -> None:
        self.arch = arch
        self.label = f"emulator:{arch}"
        self.torch_device = torch.device("cpu")
        self.checks = Checks(races=check_races, uninitialized=check_uninitialized)
        self.step_limit = step_limit

    def load(self, report: CompileReport, plan: LaunchPlan) -> LoadedEmulator:
        """Parses and compiles the kernels of a plan. What does not fit the device shows at the launch, as a failure."""
        return LoadedEmulator(self, report, plan)


class LoadedEmulator:
    """A candidate with its module variables and scratch buffers."""

    def __init__(self, backend: EmulatorBackend, report: CompileReport, plan: LaunchPlan) -> None:
        self.backend, self.plan = backend, plan
        self._kernels: dict[str, Kernel] = {}
        self._failure: Failure | None = None
        self._refused: str | None = None
        self._scratch: dict[str, tuple[torch.Tensor, Region]] = {}
        self._launches = 0
        self._seed = 0
        self._addresses: dict[str, dict[str, Array]] = {}
        self._variables: list[Region] = []
        try:
            self._failure = self._prepare(report)
        except Refused as refused:
            self._refused = str(refused)
        except PtxError as error:
            self._refused = f"cannot be emulated: {error}"

    def _steps(self) -> tuple[KernelStep | LibraryStep, ...]:
        return (*self.plan.prepare, *self.plan.steps)

    def _prepare(self, report: CompileReport) -> Failure | None:
        """Compiles every kernel of the plan; the first launch limit that is broken."""
        texts = self._take_modules(report)
        failure = check_scratch(self.plan)
        if failure is not None:
            return failure
        for step in self._steps():
            if isinstance(step, LibraryStep):
                continue
            if step.kernel not in texts:
                message = f"the module has no kernel {step.kernel!r}"
                return Failure(stage="launch", kind="no_entry", message=message)
            text = texts[step.kernel]
            function = parse_cached(text).functions[step.kernel]
            kernel = self._kernels[step.kernel] = compile_kernel(text, step.kernel)
            resources = report.resources.get(step.kernel)
            static = resources.shared_bytes if resources else kernel.shared_size
            failure = check_step(step, function, resources, self.backend.arch, static)
            if failure is not None:
                return failure
        return None

    def _take_modules(self, report: CompileReport) -> dict[str, str]:
        """Gives every module its variables. The text that holds a kernel, by the kernel's name."""
        texts: dict[str, str] = {}
        for text in report.ptx_texts():
            module = parse_cached(text)
            entries = [name for name, function in module.functions.items() if function.entry]
            texts |= dict.fromkeys(entries, text)
            addresses, regions = module_variables(module)
            self._addresses |= dict.fromkeys(entries, addresses)
            self._variables += regions
        return texts

    def launch(
        self, arguments: Mapping[str, Argument], *, poison: int, again: bool = False, blocks: range | None = None
    ) -> LaunchResult:
        """Runs the plan once; see `Loaded`. `blocks` restricts every kernel to a range of linear block indices."""
        if self._refused is not None:
            return LaunchResult(refused=self._refused)
        if self._failure is not None:
            return LaunchResult(failure=self._failure)
        counters: dict[str, dict[str, float]] = {}
        disorder = self._disorder() if blocks is None else None
        notes = () if disorder is None else (REORDERED,)
        try:
            failure = self._run(arguments, poison, again, blocks, counters, disorder)
        except (ArgumentError, LibraryError, ValueError) as error:
            failure = Failure(stage="launch", kind="arguments", message=str(error))
        except Refused as refused:
            return LaunchResult(refused=str(refused))
        return LaunchResult(failure=failure, counters=Counters(source="emulated", kernels=counters), notes=notes)

    def release(self) -> None:
        """Lets go of scratch buffers. The next launch begins anew, also with `again`."""
        self._scratch.clear()

    def _disorder(self) -> Disorder | None:
        """The order of blocks of this launch, where they may see each other: two of six launches have them in an order
        of their own, the second of the two mirrored. All the others have them in order, which takes less time."""
        self._launches += 1
        turn = self._launches % 6
        if turn not in (2, 4) or not any(kernel.order_shows for kernel in self._kernels.values()):
            return None
        if turn == 2:
            self._seed = secrets.randbits(62)
        return Disorder(self._seed, mirrored=turn == 4)

    def _run(
        self,
        arguments: Mapping[str, Argument],
        poison: int,
        again: bool,
        blocks: range | None,
        counters: dict[str, dict[str, float]],
        disorder: Disorder | None,
    ) -> Failure | None:
        again = again and bool(self._scratch)
        self._fill_scratch(poison, again)
        values: dict[str, Argument] = dict(arguments)
        values |= {name: tensor for name, (tensor, _) in self._scratch.items()}
        values = with_views(self.plan, values)
        regions = [
            *argument_regions(arguments),
            *(region for _, region in self._scratch.values()),
            *self._variables,
        ]

        def run(steps: Iterable[KernelStep | LibraryStep], part: int) -> Failure | None:
            for number, step in enumerate(steps):
                if isinstance(step, LibraryStep):
                    self._call_library(step, values, regions)
                    continue
                own = disorder and disorder.of_step(part, number)
                found = self._launch_kernel(step, values, regions, poison, blocks, own)
                _add(counters.setdefault(step.kernel, {}), found.counters)
                if found.failure is not None:
                    return found.failure
            return None

        failure = None if again else run(self.plan.prepare, 0)
        for name in self.plan.buffers if self.plan.prepare else ():
            if self.plan.buffers[name].init == "zero":
                _raw(self._scratch[name][0]).zero_()
        before = {name: _raw(self._scratch[name][0]).clone() for name in load_time_buffers(self.plan)}
        failure = failure or run(self.plan.steps, 1)
        changed = [name for name, kept in before.items() if not torch.equal(kept, _raw(self._scratch[name][0]))]
        return failure or (load_time_changed(changed) if changed else None)

    def _call_library(self, step: LibraryStep, values: dict[str, Argument], regions: list[Region]) -> None:
        """Runs a library step. A result that stays where it is becomes a region of its own, with what lies on it."""
        buffer = self.plan.buffers.get(step.out)
        if buffer is None or buffer.init != "result":
            library_call(step, values)()
            _mark_written(regions, values[step.out])
            return
        found = library_result(step, values, like(buffer))()
        size = found.numel() * found.element_size()
        regions.append(Region(step.out, found.data_ptr(), size, tracked=True, keep=found))
        regions[-1].mark_written()
        values.update(named_on(step.out, found, self.plan.views))

    def _launch_kernel(
        self,
        step: KernelStep,
        values: Mapping[str, Argument],
        regions: list[Region],
        poison: int,
        blocks: range | None,
        disorder: Disorder | None,
    ) -> Run:
        if math.prod(step.grid) > _MOST_BLOCKS:
            raise Refused(f"{step.kernel}: a grid of {math.prod(step.grid):,} blocks", 0)
        kernel = self._kernels[step.kernel]
        declared = kernel.function.params
        packed = pack(step.args, [_parameter(variable) for variable in declared], values)
        params = {
            variable.name: (value.tobytes(), variable.align) for variable, value in zip(declared, packed, strict=True)
        }
        return run_kernel(
            kernel,
            Shape(step.grid, step.block, step.cluster, step.shared_bytes, step.cooperative),
            params,
            regions,
            addresses=self._addresses[step.kernel],
            blocks=None if blocks is None else blocks[: math.prod(step.grid)],
            checks=self.backend.checks,
            step_limit=self.backend.step_limit,
            poison=poison,
            disorder=disorder if kernel.order_shows else None,
        )

    def _fill_scratch(self, poison: int, again: bool) -> None:
        """Fresh contents for every scratch buffer; with `again` their old ones, but where the plan asks for zeros. But
        for what load-time steps have left, poisoned ones count as never written."""
        kept = set(load_time_buffers(self.plan)) if again else set()
        for name, buffer in self.plan.buffers.items():
            if buffer.init == "result":
                continue
            if name not in self._scratch:
                dtype = SCRATCH_DTYPES[buffer.dtype]
                tensor = torch.empty(buffer.shape, dtype=dtype)
                size = tensor.numel() * tensor.element_size()
                self._scratch[name] = (
                    tensor,
                    Region(name, tensor.data_ptr(), size, tracked=True, keep=tensor),
                )
            tensor, region = self._scratch[name]
            if name in kept:
                continue
            if buffer.init == "zero" or not again:
                _raw(tensor).fill_(0 if buffer.init == "zero" else poison)
            if buffer.init == "zero":
                region.mark_written()
            else:
                region.mark_unwritten()


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a scratch buffer."""
    return tensor.view(-1).view(torch.uint8) if tensor.numel() else tensor


def _parameter(variable: Variable) -> Parameter:
    return Parameter(variable.kind[0] if variable.kind[0] in "usbf" else "b", variable.size)


def argument_regions(arguments: Mapping[str, Argument]) -> list[Region]:
    """The memory that each tensor spans, views included; one region where tensors overlap. Outputs are tracked."""
    spans: list[tuple[int, int, str, torch.Tensor]] = []
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.numel():
            last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            start = value.data_ptr()
            spans.append((start, start + (last + 1) * value.element_size(), name, value))
    spans.sort(key=lambda span: span[:2])
    merged: list[tuple[int, int, str, list[torch.Tensor]]] = []
    for start, end, name, tensor in spans:
        if merged and start < merged[-1][1]:
            before = merged[-1]
            merged[-1] = (before[0], max(before[1], end), f"{before[2]}/{name}", [*before[3], tensor])
        else:
            merged.append((start, end, name, [tensor]))
    return [
        Region(
            name,
            start,
            end - start,
            tracked=all(part.startswith("out") for part in name.split("/")),
            keep=keep,
        )
        for start, end, name, keep in merged
    ]


def _mark_written(regions: list[Region], value: Argument) -> None:
    """A library call has filled a whole tensor."""
    assert isinstance(value, torch.Tensor)
    for region in regions:
        if region.start <= value.data_ptr() < region.end:
            region.mark_written()


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def module_variables(module: Module) -> tuple[dict[str, Array], list[Region]]:
    """Host memory for the module's `.global` and `.const` variables, with their initial values."""
    addresses: dict[str, Array] = {}
    regions: list[Region] = []
    storage: dict[str, Array] = {}
    for variable in module.variables.values():
        if variable.space not in ("global", "const") or variable.extern:
            continue
        array = np.zeros(-(-variable.size // 16) * 16 + 256, np.uint8)
        skip = -array.ctypes.data % 256
        body = array[skip : skip + variable.size]
        if variable.data is not None:
            body[:] = np.frombuffer(variable.data, np.uint8)
        storage[variable.name] = body
        addresses[variable.name] = np.array([[body.ctypes.data]], np.uint64)
        region = Region(variable.name, body.ctypes.data, variable.size, tracked=variable.space == "global", keep=array)
        region.mark_written()
        regions.append(region)
    for variable in module.variables.values():
        for place, name, addend in variable.pointers:
            target = np.array([int(addresses[name][0, 0]) + addend], np.uint64)
            storage[variable.name][place : place + 8] = target.view(np.uint8)
    return addresses, regions
