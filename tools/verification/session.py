"""What a worker keeps for one problem on one device: inputs, float64 references, output buffers,
baselines."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from warpsmith.kernels.problem import Problem, ProblemRef, load_ref
from warpsmith.kernels.records import LaunchPlan, LibraryStep, Speedup
from warpsmith.sandbox import process
from warpsmith.sandbox.backend import Backend, scratch_bytes
from warpsmith.sandbox.cuda.benchmarked import leave_room
from warpsmith.sandbox.cuda.memory import total_bytes
from warpsmith.tools.target import Target
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.input_sets import InputSet, SetMaker
from warpsmith.tools.verification.inputs import KINDS, QUICK, SHIPPED, Kind
from warpsmith.tools.verification.memory import TIMES_EAGER, MemoryBudget, budget_of
from warpsmith.tools.verification.outputs import GuardedOutputs, Layout

if TYPE_CHECKING:
    from warpsmith.sandbox.cuda.backend import CudaBackend
    from warpsmith.tools.measurement.stage import Stage

Level = Literal["quick", "full"]
_RUINED = "CUDA error"
"""In what torch raises of a context that cannot be used any more; want of memory is told otherwise."""
_RENEWAL_S = 0.05
"""Seconds a full verdict may spend on inputs that no verdict has seen."""
_WORKING_COPIES = 3
"""Memory that making a set takes beyond what stays, in sizes of a set: float64 inputs and intermediates; where eager
was not measured."""


@dataclass(slots=True)
class Session:
    """State for one problem. Sets are made on demand and kept while they fit the budget."""

    problem: Problem
    backend: Backend
    budget_bytes: int
    """Memory that kept sets may take, whatever the problem's own bound is."""
    memory: MemoryBudget = field(init=False)
    maker: SetMaker = field(init=False)
    compiled: dict[str, Any] = field(default_factory=dict)
    """torch.compile's modules by mode, or the text of what went wrong."""
    _sets: dict[tuple[Level, str], InputSet] = field(default_factory=dict)
    _used: set[tuple[Level, str]] = field(default_factory=set)
    """Kept sets that some verdict has seen."""
    _outputs: tuple[GuardedOutputs, GuardedOutputs | None] | None = None
    scratch_bytes: int = 0
    """What the candidate that is judged takes beside inputs and outputs: by its plan, or as measured."""
    runs: dict[str, int] = field(default_factory=dict)
    """Bytes that a run of a baseline takes beside its inputs, by name, once it was measured."""
    baseline_peaks: dict[str, int] = field(default_factory=dict)
    """The most that compiling a baseline and running it alone holds, weights and inputs included."""
    benchmarks: bool = False
    """Whether a library that the candidate calls times its algorithms first."""
    _expected: LaunchPlan | None = None
    _unmeasured: bool = False
    """Whether the candidate takes more than its plan tells, and nothing else is known yet."""
    stages: dict[int, Stage] = field(default_factory=dict)
    """Where timed runs take place, by the number of places; made once for all candidates."""
    waited_s: float = 0.0
    """Spent waiting for the device, all in all."""
    null_test: Speedup | None = None
    """A baseline timed against itself, once a process."""
    baseline_errors: dict[str, float] | None = None
    """Of compiled forms, in units of eager's error; found out once a process."""
    _single: bool = False
    """Whether screening has one kind of inputs alone, as two sets do not fit beside each other."""

    def __post_init__(self) -> None:
        device = self.backend.torch_device
        # A kernel may read any address of its GPU context; the emulator gives it the tensors it is handed, no more.
        on_gpu = device.type == "cuda"
        self.maker = SetMaker(self.problem, device, sealed=on_gpu)
        self.memory = self.maker.memory

    @property
    def dropped(self) -> dict[str, str]:
        """Kinds that this problem does not admit, with the reason."""
        return self.maker.dropped

    def input_set(self, name: str, level: Level = "quick") -> InputSet | None:
        """The inputs of a kind, or None where the problem does not admit it. UserError where memory is
        short. Levels share no inputs: what a search was steered by decides no full verdict."""
        if name in self.dropped:
            return None
        if (level, name) in self._sets:
            self._used.add((level, name))
            return self._sets[level, name]
        if name != SHIPPED and not self.maker.knows_shipped:
            # The maker would make the set for itself and let it go.
            self.input_set(SHIPPED, level)
        made = self._made(next(kind for kind in KINDS if kind.name == name))
        if made is not None and (self._roomy(made) or self._alone_fits(name, level, made)):
            self._sets[level, name] = made
        return made

    def keeps(self, name: str, level: Level) -> bool:
        """Whether the set of a kind is there for the next candidate."""
        return (level, name) in self._sets

    def renew(self) -> None:
        """Before a full verdict: lets go of sets that an earlier one has used, the oldest first, as many as can be made
        anew in a share of the time that a verdict takes."""
        spent = 0.0
        for key in [key for key in self._sets if key[0] == "full" and key in self._used]:
            spent += self._sets[key].made_s
            del self._sets[key]
            self._used.discard(key)
            if spent > _RENEWAL_S:
                break

    def timed_set(self, level: Level) -> InputSet | None:
        """What candidates are timed on: the shipped inputs, or others where a problem does not admit those, or where
        screening has no room for two sets."""
        first = self.names(level)[0] if level == "quick" and self._single else SHIPPED
        return self.input_set(first) or self.input_set("normal")

    def _alone_fits(self, name: str, level: Level, made: InputSet) -> bool:
        """Whether a set that leaves no room for making another may stay all the same, being the only one that screening
        looks at: made anew for each candidate, it would take most of the time."""
        if level != "quick" or self.memory.meter is None:
            return False
        self._single = True
        once = sum(layout.bytes for layout in made.layouts)
        given = sum(value.nbytes for value in made.inputs if isinstance(value, torch.Tensor))
        beside = max(given, self._wide_bytes)
        return name in self.names(level) and self.memory.allows(2 * once + beside + self.memory.aside)

    def _made(self, kind: Kind) -> InputSet | None:
        """Makes a set, in a turn on the device; where memory is short, once more with everything given up that can be
        made again."""
        with self.alone(shared=True):
            return self._made_in_turn(kind)

    def _made_in_turn(self, kind: Kind) -> InputSet | None:
        self.make_room(self._making_bytes())
        try:
            return self.maker.make(kind)
        except Exception as error:
            if not oracle.is_out_of_memory(error):
                raise
        # Outside the handler: the traceback would hold on to the tensors of the attempt.
        self.release()
        try:
            return self.maker.make(kind, on_cpu_at_need=True)
        except Exception as error:
            if oracle.is_out_of_memory(error):
                raise oracle.too_large(error, self.backend.label) from error
            raise

    def make_room(self, count: int, *, buffers: bool = True, timed: InputSet | None = None) -> None:
        """Gives up what can be made again until so many bytes more may be taken: `buffers` and places of timing first,
        as they cost least, then kept sets, then what torch.compile made. Not the set that is `timed`, nor what it is
        timed on."""
        if buffers and not self.memory.allows(count):
            self._outputs = None
            self.stages.clear()
        if not self.memory.allows(count):
            self._sets = {key: kept for key, kept in self._sets.items() if kept is timed}
            self._used &= self._sets.keys()
        if timed is None and self.compiled and not self.memory.allows(count):
            # What torch.compile made holds on to the weights that it was made with.
            self.forget_compiled()
        if self.memory.tight and self.backend.torch_device.type == "cuda":
            # What is free in parts of blocks that something else is in holds nothing of the size of an input.
            torch.cuda.empty_cache()

    def expect(self, plan: LaunchPlan) -> None:
        """The next candidate: what it takes beside inputs and outputs. A plan recorded as a graph works on copies of
        both. What was measured of the one that was expected last stays known."""
        if plan == self._expected:
            return
        self._expected = plan if self.memory.eager_bytes is not None else None
        given = (self.memory.eager_bytes or 0) - self.maker.instances.weight_bytes
        self.benchmarks = plan.benchmarks
        self._unmeasured = any(isinstance(step, LibraryStep) for step in (*plan.prepare, *plan.steps))
        self.scratch_bytes = scratch_bytes(plan) + (max(0, given) if plan.graph else 0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Around a run of the candidate. The first one of a plan with calls of libraries is measured: they take memory
        that no plan tells of."""
        if not self._unmeasured:
            yield
            return
        with self.memory.run() as taken:
            yield
        self.scratch_bytes = max(self.scratch_bytes, taken.bytes)
        self._unmeasured = False

    def run_bytes(self, given: int, names: Sequence[str] = ()) -> int:
        """What has to be left for runs beside the `given` bytes of inputs: the largest of eager's, or of what stands
        for it, and of those named baselines; or a comparison with references that are had row by row."""
        most = [max(0, (self.memory.eager_bytes or 0) - given), *(self.runs.get(name, 0) for name in names)]
        return max(*most, self._wide_bytes + self.memory.aside if self.maker.by_rows else 0)

    def forget_compiled(self) -> None:
        """Lets go of what torch.compile made; its cache on disk makes it again in seconds."""
        self.compiled.clear()
        torch.compiler.reset()
        oracle.return_memory()

    def crowded(self) -> bool:
        """Whether weights and scratch of the last run have to go before a set is made: much, and in the way."""
        much = self.scratch_bytes + self.maker.instances.weight_bytes > self.memory.working
        return much and not self.memory.allows(self._making_bytes())

    def _making_bytes(self) -> int:
        """What making a set takes: its inputs, and a pass in float64 or eager, what all rows need in float64 and a
        batch."""
        most = self.memory.eager_bytes or 0
        return most + self._wide_bytes + self.memory.aside if self.maker.by_rows else TIMES_EAGER * most

    @property
    def _wide_bytes(self) -> int:
        """Taken while results are held against references that are computed row by row."""
        return self.memory.wide_bytes if self.maker.by_rows else 0

    @contextlib.contextmanager
    def alone(self, *, shared: bool = False) -> Iterator[None]:
        """While entered, no other process of ours uses the GPU: what one verifies would disturb what another times.
        `shared`: others that time nothing may use it as well; not to be held longer than it takes to judge one set of
        inputs, for those that want to time something wait. Who is alone, or shares, may enter it again to share."""
        began = time.perf_counter()
        with alone_on(self.backend.torch_device, shared=shared):
            self.waited_s += time.perf_counter() - began
            try:
                yield
            except RuntimeError as error:
                if _RUINED in str(error):
                    # A module may ruin it too (an index beyond an embedding): no later verdict can be had here.
                    process.retire()
                raise

    def release(self) -> None:
        """Gives up kept sets and buffers."""
        self._sets.clear()
        self._used.clear()
        self.stages.clear()
        self._outputs = None
        oracle.return_memory()

    def _roomy(self, made: InputSet) -> bool:
        """Whether keeping a set leaves enough for judging on it and for making another one."""
        meter = self.memory.meter
        if meter is None:
            return made.bytes + sum(kept.bytes for kept in self._sets.values()) <= self.budget_bytes
        free = self.budget_bytes - meter.held()
        buffers = 0 if self._outputs else 2 * sum(layout.bytes for layout in made.layouts)
        return free >= _WORKING_COPIES * made.bytes and self.memory.allows(
            max(self._making_bytes(), self.memory.aside) + buffers
        )

    def reset(self) -> None:
        """Draws everything anew at the next use, under new entropy: a candidate wrote where it must not."""
        self.maker.reset()
        self._outputs = None
        self.stages.clear()
        self._sets.clear()
        self._used.clear()
        self._single = False
        self.compiled.clear()

    def spoilt(self) -> bool:
        """Whether somebody wrote into a set that is kept."""
        return any(kept.spoilt() for kept in self._sets.values())

    def names(self, level: Level) -> list[str]:
        """Kinds in the order in which they are judged."""
        # The stricter one alone: it is judged by the ratio to eager's error.
        quick = QUICK if not self._single else ("normal",) if "normal" not in self.dropped else (SHIPPED,)
        return [kind.name for kind in KINDS if level == "full" or kind.name in quick]

    def outputs(self, layouts: tuple[Layout, ...]) -> tuple[GuardedOutputs, GuardedOutputs | None]:
        """Two sets of guarded output buffers, reused from candidate to candidate; one where memory is short."""
        if self._outputs is None or self._outputs[0].layouts != layouts:
            self._outputs = None
            one, room = sum(layout.bytes for layout in layouts), self._judging_bytes(layouts)
            self.make_room(one + room)
            first = self._buffers(layouts)
            if first is None:
                self.release()
                first = self._buffers(layouts, needed=True)
            assert first is not None
            self._outputs = first, self._buffers(layouts) if self.memory.allows(one + room) else None
        return self._outputs

    def clear_for(self, inputs: InputSet) -> None:
        """Before a candidate's first run: there is room for what it takes for itself, and for comparing its results.
        Places of timing go first, then the second place for outputs, then other sets."""
        room = self._judging_bytes(inputs.layouts)
        if not self.memory.allows(room):
            self.stages.clear()
        if self._outputs is not None and not self.memory.allows(room):
            self._outputs = self._outputs[0], None
        self.make_room(room, buffers=False, timed=inputs)
        self.lighten(inputs, room)

    def lighten(self, inputs: InputSet, count: int) -> None:
        """References of a set in use go to the host where all else did not make room for so many bytes more."""
        if not self.memory.allows(count):
            inputs.leave()

    def _judging_bytes(self, layouts: tuple[Layout, ...]) -> int:
        """What a run of the candidate and a comparison take beside places for outputs."""
        # Results that do not lie in order are compared as a copy.
        copies = sum(layout.bytes for layout in layouts if not layout.row_major)
        return self.memory.aside + self._wide_bytes + copies + self.scratch_bytes

    def _buffers(self, layouts: tuple[Layout, ...], *, needed: bool = False) -> GuardedOutputs | None:
        """Output buffers, or None where they do not fit; UserError if they are needed."""
        try:
            return GuardedOutputs(layouts, self.backend.torch_device)
        except Exception as error:
            if not oracle.is_out_of_memory(error):
                raise
            if needed:
                raise oracle.too_large(error, self.backend.label) from error
        return None

    def cuda(self) -> CudaBackend:
        """The backend, where it is a GPU: only there is anything timed."""
        from warpsmith.sandbox.cuda.backend import CudaBackend

        assert isinstance(self.backend, CudaBackend)
        return self.backend

    def bare_set(self) -> InputSet:
        """The shipped inputs without references."""
        with self.alone(shared=True):
            return self.maker.bare()

    def another(self, made: InputSet) -> list[Any]:
        """Other inputs of the same kind for the same module."""
        with self.alone(shared=True):
            return self.maker.another(made)

    def fresh(self, turn: int) -> list[Any]:
        """Another draw of the shipped distribution, for timing."""
        with self.alone(shared=True):
            return self.maker.fresh(turn)


def alone_on(device: torch.device, *, shared: bool = False) -> contextlib.AbstractContextManager[None]:
    """As `Session.alone`, where there is no session."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    from warpsmith.sandbox.cuda.facts import identity
    from warpsmith.sandbox.cuda.lock import turn

    return turn(identity(device.index or 0).uuid, shared=shared)


_current: dict[str, Session] = {}
"""The one session of this process: another problem or device takes its place, and its memory."""
_beside: OrderedDict[str, Session] = OrderedDict()
"""Sessions of the same problem at hidden shapes, which are small; the one used longest ago goes first."""
_MOST_BESIDE = 9
_backends: dict[str, Backend] = {}


def session_for(payload: Mapping[str, Any]) -> Session:
    """This process's session for `payload["problem"]` on `payload["target"]`; with `payload["beside"]`, a small one
    that takes no other's place."""
    ref = ProblemRef.model_validate(payload["problem"])
    target = Target.model_validate(payload["target"])
    beside = payload.get("beside", False)
    kept = _beside if beside else _current
    key = f"{ref.model_dump_json()} {target.model_dump_json()}"
    if key not in kept:
        if not beside:
            _current.clear()
            _beside.clear()
        oracle.pin_flags()
        backend = backend_for(target)
        if not beside:
            oracle.return_memory()
            budget = budget_of(backend.torch_device)
            budget.begin()
            leave_room(budget.room)
        kept[key] = Session(load_ref(ref), backend, _budget(backend))
    if beside:
        declared = next(iter(_current.values()), None)
        kept[key].maker.tf32_elsewhere = declared is not None and declared.maker.tf32_at_work
        _beside.move_to_end(key)
        while len(_beside) > _MOST_BESIDE:
            _beside.popitem(last=False)
    return kept[key]


def backend_for(target: Target) -> Backend:
    """This process's backend of a target; a GPU's initialises CUDA."""
    key = target.model_dump_json()
    if key not in _backends:
        if target.backend is not None:
            module, _, function = target.backend.partition(":")
            _backends[key] = getattr(importlib.import_module(f"warpsmith.{module}"), function)()
        elif target.kind == "gpu":
            from warpsmith.sandbox.cuda.backend import CudaBackend
            from warpsmith.sandbox.cuda.facts import identity
            from warpsmith.sandbox.cuda.lock import exclusive

            # A context that comes into being disturbs what is timed in another.
            with exclusive(identity(target.index).uuid, shared=True):
                _backends[key] = CudaBackend(target.index)
        else:
            from warpsmith.sandbox.emulator.backend import EmulatorBackend

            _backends[key] = EmulatorBackend(target.arch)
    return _backends[key]


def _budget(backend: Backend) -> int:
    if backend.torch_device.type == "cuda":
        return int(0.3 * total_bytes(backend.torch_device))
    return 1 << 30
