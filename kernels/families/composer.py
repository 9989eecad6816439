"""Owns the composer: several kernels and library calls as one candidate, in one module and one launch plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from warpsmith.kernels.assemble import fixed_kernels
from warpsmith.kernels.composite import AnyRegion, Composite, Kernel, KernelPart, Layout, LibraryPart
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families.library_cost import of_library
from warpsmith.kernels.family import Family, Invalid, LaunchFeatures
from warpsmith.kernels.hashed import ByObject
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep, SlotValue
from warpsmith.kernels.slots import Slot, Values
from warpsmith.kernels.units import namespaced

_NAMES: Mapping[Layout, tuple[str, str]] = {
    "contiguous": ("composer", "several kernels and library calls in order, joined by scratch buffers"),
    "channels_last": (
        "channels_last",
        "several kernels and library calls in order; the channels of a position are neighbours in memory wherever a "
        "library convolves, as tensor cores take them",
    ),
}
"""Name and description of the family that joins composites of a layout."""
LAUNCH = "launch"
"""The slot that says how the plan's steps reach the device."""
ALGORITHM = "convolution_algorithm"
"""The slot that says how a library chooses among its algorithms."""
_MOST_BENCHMARKED = 16
"""Different convolutions for which that is a choice: timing algorithms takes 0.1 to 6 s each, in every process."""
_KERNEL_HOST_US, _LIBRARY_HOST_US = 6.0, 15.0
"""What the host takes to enqueue a kernel through the driver's binding, and to call an ATen operator from Python: usual
figures, not measured here."""


class ComposerFamily:
    """Each kernel is written by the family that computes its region alone, in a namespace of its own."""

    def __init__(self, families: Mapping[str, Family], layout: Layout = "contiguous") -> None:
        """`families` are those of single regions, by name; `layout` is that of the composites which it joins."""
        self._families = families
        self.layout = layout
        self.name, self.doc = _NAMES[layout]

    @property
    def opts_in(self) -> tuple[str, ...]:
        """What any of the families opts into."""
        return tuple({kind for family in self._families.values() for kind in getattr(family, "opts_in", ())})

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, Composite):
            return "it is one region"
        if region.layout != self.layout:
            return f"its layout is {region.layout}"
        reasons = (self._families[kernel.family].refuse(kernel.region) for kernel in region.kernels)
        return next((reason for reason in reasons if reason is not None), None)

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The slots of the kernels that are open, each with its kernel's number before it."""
        found = [_LAUNCH_SLOT] if _several_launches(_composite(region)) else []
        found += [_ALGORITHM_SLOT] if _few_convolutions(_composite(region)) else []
        for number, kernel in _open(_composite(region)):
            own = _slots(self._families[kernel.family].slots, kernel, device)
            about = f"kernel {number} ({kernel.family})"
            found += [replace(slot, name=f"p{number}_{slot.name}", doc=f"{about}: {slot.doc}") for slot in own]
        return tuple(found)

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """The rule of each kernel's family."""
        own = _Own(values)
        for number, kernel in _open(_composite(region)):
            found = _checked(self._families[kernel.family].check, kernel, device, own.of(number))
            if found is not None:
                slots = tuple(f"p{number}_{name}" for name in found.slots)
                return Invalid(slots, found.kind, f"kernel {number}: {found.message}")
        return None

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Each family's prior."""
        values: Values = {}
        for number, kernel in _open(_composite(region)):
            own = _sensible(self._families[kernel.family].sensible, kernel, device)
            values |= {f"p{number}_{name}": value for name, value in own}
        if _few_convolutions(_composite(region)):
            values[ALGORITHM] = self._cheaper(region, device, values, _ALGORITHM_SLOT)
        if _several_launches(_composite(region)):
            # A graph spares the host every step but copies what comes in and goes out.
            values[LAUNCH] = self._cheaper(region, device, values, _LAUNCH_SLOT)
        return values

    def _cheaper(self, region: AnyRegion, device: DeviceModel, values: Values, slot: Slot) -> SlotValue:
        """The value of a slot that costs less by the model, the first where none does."""
        naive = {one.name: one.default for one in self.slots(region, device)}
        return min(
            slot.values,
            key=lambda way: _us(self.features(region, device, naive | values | {slot.name: way}), device),
        )  # fmt: skip

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """One module with every kernel, one plan with every part."""
        whole = _composite(region)
        own = _Own(values)
        wrapped = [self._alone(kernel, device, number, own) for number, kernel in enumerate(whole.kernels)]
        made = [candidate for candidate, _ in wrapped]
        texts, lines, at = [], {}, 0
        for number, (candidate, text) in enumerate(wrapped):
            texts.append(text)
            for name, (first, last) in candidate.slot_lines.items():
                if whole.kernels[number].tunable:
                    lines[f"p{number}_{name}"] = (at + first + 1, at + last + 1)
            at += texts[-1].count("\n") + 1
        plan = _plan(whole, made, graph=_as_graph(values), benchmark=_benchmarks(values))
        return Candidate(
            source="\n".join(texts) or "// library calls alone\n", plan=plan, family=self.name, values=dict(values),
            slot_lines=lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of every launch, and of every library call as far as its bytes and FLOPs tell. Steps take
        the host's time, a graph that of its copies."""
        whole = _composite(region)
        graph = _as_graph(values)
        own = _Own(values)
        found: list[LaunchFeatures] = []
        for part in self._steps_of(whole, device, graph=graph, benchmark=_benchmarks(values)):
            found += (
                self._features(whole.kernels[part], device, part, own, graph=graph) if isinstance(part, int) else part
            )
        return tuple(found)

    def _steps_of(self, whole: Composite, device: DeviceModel, *, graph: bool, benchmark: bool) -> list[_Step]:
        """What runs in each call, in order: launches where no slot decides of them, else the number of a kernel."""
        known, key = _STEPS.of(whole), (device, graph, benchmark)
        if key not in known:
            known[key] = self._made_steps(whole, device, graph=graph, benchmark=benchmark)
        return known[key]

    def _made_steps(self, whole: Composite, device: DeviceModel, *, graph: bool, benchmark: bool) -> list[_Step]:
        found: list[_Step] = []
        for part in (part for part in whole.parts if not part.load_time):
            if isinstance(part, LibraryPart):
                found.append(_of_library(part, device, graph=graph, benchmark=benchmark))
            elif whole.kernels[part.kernel].tunable:
                found.append(part.kernel)
            else:
                found.append(self._features(whole.kernels[part.kernel], device, part.kernel, _Own({}), graph=graph))
        if graph:
            found.append(tuple(_copy(count, device) for count in (*whole.input_bytes, *whole.output_bytes)))
        return found

    def _values(self, kernel: Kernel, device: DeviceModel, number: int, values: _Own) -> _Listed:
        if kernel.tunable:
            return values.of(number)
        family = self._families[kernel.family]
        naive = {slot.name: slot.default for slot in _slots(family.slots, kernel, device)}
        return _listed(naive | dict(_sensible(family.sensible, kernel, device)))

    def _alone(self, kernel: Kernel, device: DeviceModel, number: int, values: _Own) -> tuple[Candidate, str]:
        own = self._values(kernel, device, number, values)
        return _emitted(self._families[kernel.family].emit, kernel, device, own, number)

    def _features(
        self, kernel: Kernel, device: DeviceModel, number: int, values: _Own, *, graph: bool
    ) -> tuple[LaunchFeatures, ...]:  # fmt: skip
        own = self._values(kernel, device, number, values)
        host_us = 0.0 if graph else _KERNEL_HOST_US
        return _launched(self._families[kernel.family].features, kernel, device, own, number, host_us)


_Listed = tuple[tuple[str, SlotValue], ...]
"""Values of one kernel, by name."""
_Step = int | tuple[LaunchFeatures, ...]


def _no_steps(whole: Composite) -> dict[tuple[DeviceModel, bool, bool], list[_Step]]:
    del whole
    return {}


_STEPS = ByObject(_no_steps)
"""Steps of a composite by device and by how they are launched."""


def _listed(values: Values) -> _Listed:
    return tuple(sorted(values.items()))


# A search changes few kernels at a time: what is known of the others is not worked out again.
@lru_cache(maxsize=1024)
def _emitted(
    emit: Callable[[AnyRegion, DeviceModel, Values], Candidate], kernel: Kernel, device: DeviceModel, values: _Listed,
    number: int,
) -> tuple[Candidate, str]:  # fmt: skip
    """A kernel by itself, and its source as that of kernel `number`."""
    candidate = emit(kernel.region, device, dict(values))
    return candidate, _wrapped(candidate, number)


@lru_cache(maxsize=8192)
def _checked(
    check: Callable[[AnyRegion, DeviceModel, Values], Invalid | None], kernel: Kernel, device: DeviceModel,
    values: _Listed,
) -> Invalid | None:  # fmt: skip
    return check(kernel.region, device, dict(values))


@lru_cache(maxsize=8192)
def _launched(
    features: Callable[[AnyRegion, DeviceModel, Values], tuple[LaunchFeatures, ...]], kernel: Kernel,
    device: DeviceModel, values: _Listed, number: int, host_us: float,
) -> tuple[LaunchFeatures, ...]:  # fmt: skip
    """Of kernel `number` of a plan whose steps take the host that long each."""
    found = features(kernel.region, device, dict(values))
    return tuple(replace(launch, kernel=f"p{number}_{launch.kernel}", host_us=host_us) for launch in found)


@lru_cache(maxsize=1024)
def _slots(
    slots: Callable[[AnyRegion, DeviceModel], tuple[Slot, ...]], kernel: Kernel, device: DeviceModel
) -> tuple[Slot, ...]:  # fmt: skip
    return slots(kernel.region, device)


@lru_cache(maxsize=1024)
def _sensible(sensible: Callable[[AnyRegion, DeviceModel], Values], kernel: Kernel, device: DeviceModel) -> _Listed:
    return tuple(sensible(kernel.region, device).items())


def _composite(region: AnyRegion) -> Composite:
    if not isinstance(region, Composite):
        raise TypeError("the composer joins several regions")
    return region


def _open(whole: Composite) -> Iterator[tuple[int, Kernel]]:
    return ((number, kernel) for number, kernel in enumerate(whole.kernels) if kernel.tunable)


class _Own:
    """A composite's values, by kernel."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._names = _names(tuple(values))

    def of(self, number: int) -> _Listed:
        """A kernel's values by its family's names."""
        return tuple((own, self._values[name]) for own, name in self._names.get(f"p{number}", ()))


# All combinations that a search thinks of have the same names.
@lru_cache(maxsize=256)
def _names(names: tuple[str, ...]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """By what a kernel's names begin with: what its family calls each, in order, and the whole name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        kernel, _, own = name.partition("_")
        found.setdefault(kernel, []).append((own, name))
    return {kernel: tuple(sorted(owned)) for kernel, owned in found.items()}


def _wrapped(candidate: Candidate, number: int) -> str:
    """The source in a namespace, its kernels renamed: those have C names, which no namespace keeps apart."""
    text = candidate.source
    for name in fixed_kernels(candidate):
        text = re.sub(rf"\b{name}\b", f"p{number}_{name}", text)
    return namespaced(text, number)


def _several_launches(whole: Composite) -> bool:
    """A library may launch any number of kernels in one call: a recurrent layer, some for every point in time."""
    return len(whole.parts) > 1 or any(isinstance(part, LibraryPart) for part in whole.parts)


def _as_graph(values: Values) -> bool:
    return values.get(LAUNCH) == "graph"


def _few_convolutions(whole: Composite) -> bool:
    """Whether a library convolves here, and few enough different things for timing its algorithms."""
    work = {part.convolved for part in whole.parts if isinstance(part, LibraryPart)} - {None}
    return 0 < len(work) <= _MOST_BENCHMARKED


def _benchmarks(values: Values) -> bool:
    return values.get(ALGORITHM) == "benchmark"


def _us(features: tuple[LaunchFeatures, ...], device: DeviceModel) -> float:
    return total_us(breakdown(features, device))


def _plan(whole: Composite, made: list[Candidate], *, graph: bool, benchmark: bool) -> LaunchPlan:
    buffers = dict(whole.buffers)
    steps: list[KernelStep | LibraryStep] = []
    prepare: list[KernelStep | LibraryStep] = []
    for place, part in enumerate(whole.parts):
        if isinstance(part, LibraryPart):
            chosen = part.step.model_copy(update={"benchmark": benchmark and part.convolved is not None})
            (prepare if part.load_time else steps).append(chosen)
            continue
        own, names = _scratch(made[part.kernel], part, place)
        buffers |= own
        (prepare if part.load_time else steps).extend(_steps(made[part.kernel], part.kernel, names))
    return LaunchPlan(
        buffers=buffers, views=dict(whole.views), steps=tuple(steps), prepare=tuple(prepare), graph=graph
    )  # fmt: skip


def _scratch(candidate: Candidate, part: KernelPart, place: int) -> tuple[dict[str, Buffer], dict[str, str]]:
    """A kernel's own scratch, apart for each of its uses, and what each of its names is in the whole plan."""
    own = {f"s{place}_{name}": buffer for name, buffer in candidate.plan.buffers.items()}
    names = dict(part.binding) | {name: f"s{place}_{name}" for name in candidate.plan.buffers}
    return own, names


def _steps(candidate: Candidate, number: int, names: Mapping[str, str]) -> Iterator[KernelStep]:
    for step in candidate.plan.steps:
        assert isinstance(step, KernelStep)
        args = tuple(names[arg] if isinstance(arg, str) else arg for arg in step.args)
        yield step.model_copy(update={"kernel": f"p{number}_{step.kernel}", "args": args})


_LAUNCH_SLOT = Slot(
    name=LAUNCH, owner="config", kind="choice", values=("steps", "graph"), default="steps",
    doc="how the plan's steps reach the device: one by one, or recorded once and replayed as a CUDA graph, with copies "
    "of inputs and outputs",
)  # fmt: skip


_ALGORITHM_SLOT = Slot(
    name=ALGORITHM, owner="config", kind="choice", values=("heuristic", "benchmark"), default="heuristic",
    doc="how cuDNN chooses the algorithm of a convolution: by its heuristics, as eager PyTorch lets it, or by timing "
    "its algorithms at the first call (`torch.backends.cudnn.benchmark`)",
)  # fmt: skip


def _copy(count: int, device: DeviceModel) -> LaunchFeatures:
    """A copy of so many bytes on the device."""
    return LaunchFeatures(
        kernel="copy", blocks=max(1, min(2 * device.sms, count // 4096)), threads=256, registers=32, shared_bytes=0,
        dram_read=count, dram_written=count, l2_read=count, shared_traffic=0, flops=0, special_ops=0,
        instructions=count // 4, bytes_in_flight=64, barriers=0, independent=4, host_us=_KERNEL_HOST_US,
    )  # fmt: skip


def _of_library(
    part: LibraryPart, device: DeviceModel, *, graph: bool, benchmark: bool
) -> tuple[LaunchFeatures, ...]:  # fmt: skip
    """A library call, and the copy of its result where it has to follow."""
    call = of_library(part, device, benchmark=benchmark)
    calls = (call, _copy(part.copied, device)) if part.copied and (graph or not part.left) else (call,)
    return calls if graph else tuple(replace(one, host_us=_LIBRARY_HOST_US) for one in calls)
