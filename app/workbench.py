"""What the commands share: the problem, its region, the machine it is for, and the evaluator that joins them."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from warpsmith import __version__
from warpsmith.app.commit import commit
from warpsmith.app.cores import default_jobs
from warpsmith.app.reference import Approval
from warpsmith.app.variables import check_variables
from warpsmith.kernels.capture import capture
from warpsmith.kernels.cost import estimate_us, floor_of, floor_us
from warpsmith.kernels.costs import flops_by_unit
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.errors import EnvironmentError_, NotYetError, UserError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.families.rewritten import RewrittenFamily, after_rewrites
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.plan import Plan, plan
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate, CompileReport, RunManifest
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator, Limits
from warpsmith.tools.foreign import Foreign
from warpsmith.tools.lease import seats
from warpsmith.tools.operands import Operand, operands_of
from warpsmith.tools.outcomes import Roof, roof_of
from warpsmith.tools.plan_file import scratch_limit
from warpsmith.tools.profiling.insight import Insight, Wanted
from warpsmith.tools.runs.store import RunStore, utc_now
from warpsmith.tools.target import Target
from warpsmith.tools.verification.cross_examine import CrossExaminer
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes
from warpsmith.tools.workers import Notify

DEFAULT_ARCH = "sm_90"
_VERSIONED = ("torch", "numpy", "langgraph", "pydantic", "cupy-cuda13x", "cupy-cuda12x")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where candidates run and what is known of it."""

    target: Target
    model: DeviceModel
    driver: str | None

    @property
    def label(self) -> str:
        """As in `verified_on`."""
        return f"gpu:{self.model.name}" if self.target.kind == "gpu" else f"emulator:{self.target.arch}"


@dataclass(frozen=True)
class Bench:
    """A problem laid out on a machine."""

    problem: Problem
    machine: Machine
    compiler: Compiler
    jobs: int
    """Processes that work side by side: compilers, and workers of the emulator."""
    approval: Approval | None = None
    """Set where a model wrote the module."""

    @cached_property
    def graph(self) -> OpGraph:
        """The problem's graph, captured where kernels are to be made for it: judging those of others needs none.
        Raises NotYetError for what no family covers."""
        return capture(self.problem)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What a launch plan may name."""
        return operands_of(self.problem)

    @property
    def floor_us(self) -> float | None:
        """The least time in which the device can read the used inputs and write the outputs; None without a graph."""
        try:
            graph = self.graph
        except NotYetError:
            return None
        return floor_of(graph.floor_bytes, flops_by_unit(graph), self.machine.model)

    @cached_property
    def foreign(self) -> Foreign:
        """Looks at candidates that no template made."""
        return Foreign(self.operands, scratch_limit(self.machine.target.kind), self.machine.model)

    def plan(self) -> Plan:
        """What computes the graph on this machine. Raises NotYetError naming the node that is in the way."""
        return self._plan

    @cached_property
    def _plan(self) -> Plan:
        return plan(self.graph, device=self.machine.model)

    def evaluator(
        self, specs: Mapping[str, KernelSpec], store: RunStore | None, roof: Roof | None, notify: Notify | None = None,
        *, counters: Wanted = "none",
    ) -> Evaluator:  # fmt: skip
        """An evaluator whose estimates come from the spec of the candidate's family. `counters`: who is profiled.

        It runs the user's module: to be called outside of an event loop, which keeps Ctrl-C back until it has the turn.
        """

        def estimate(candidate: Candidate, report: CompileReport) -> float | None:
            spec = specs.get(candidate.family)
            return estimate_us(spec, dict(candidate.values), report) if spec is not None else None

        hidden = self._hidden(specs, self.machine.target.kind)
        return Evaluator(
            self.problem.ref, self.problem.hash, self.machine.target, self.compiler, store=store, estimate=estimate,
            roof=roof, jobs=self.jobs, notify=notify, hidden=hidden, cross=self._cross(specs),
            insight=Insight(self.machine.model, self._profiled(counters)), foreign=self.foreign, limits=_limits(),
            roofs=_roofs_after_rewrites(specs, self.machine),
        )  # fmt: skip

    def _profiled(self, counters: Wanted) -> Wanted:
        """ncu runs outside of the layers: it never runs a module that a model wrote."""
        return "none" if self.problem.ref.kind == "reference" else counters

    def _cross(self, specs: Mapping[str, KernelSpec]) -> CrossExaminer | None:
        """On a GPU: the emulator's second opinion."""
        if self.machine.target.kind != "gpu":
            return None
        # The compilers and the GPU's own worker want cores as well.
        jobs = max(1, min(6, self.jobs // 3))
        return CrossExaminer(self.problem, self._hidden(specs, "cpu"), self.compiler, jobs=jobs)

    def _hidden(self, specs: Mapping[str, KernelSpec], kind: str) -> HiddenShapes:
        """Shapes beyond the declared one. Judging what no template made needs no graph."""
        return HiddenShapes(self.problem, self.graph if specs else None, specs, BUDGETS[kind])


def _limits() -> Limits | None:
    """Deadlines of a run that shares its GPU: the turns of others, with their torch.compile, count towards them."""
    return Limits(prepare_s=900.0, verify_s=600.0, time_s=900.0) if (seats() or 1) > 1 else None


def open_bench(
    target: str, *, device: str, arch: str | None, overrides: Mapping[str, str], inputs: str | None, mode: str,
    jobs: int | None = None,
) -> Bench:  # fmt: skip
    """Load the problem, find the machine, open its compiler. Every fault of the input is a UserError."""
    problem = load_problem(target, overrides=overrides, inputs=inputs, mode="train" if mode == "train" else "eval")
    return bench_for(problem, device=device, arch=arch, jobs=jobs)


def bench_for(
    problem: Problem, *, device: str, arch: str | None, jobs: int | None = None, approval: Approval | None = None
) -> Bench:
    """The same for a problem that is loaded already; with the approval of one that a model wrote. `jobs`: None takes
    what the machine's cores allow."""
    machine = find_machine(device, arch)
    jobs = jobs or default_jobs()
    return Bench(problem, machine, Compiler(machine.target.arch, jobs=jobs), jobs, approval)


def find_machine(device: str, arch: str | None) -> Machine:
    """The GPU if there is one and it is wanted, else the emulator. EnvironmentError_ for `gpu` without one."""
    check_variables()
    if device != "cpu":
        found = _gpu()
        if found is not None:
            model, driver = found
            if arch is not None and arch.rstrip("af") != model.arch:
                raise UserError(
                    f"--arch {arch}: this GPU is {model.arch} ({model.name}); leave --arch out or use --device cpu"
                )
            return Machine(Target(kind="gpu", arch=arch or model.arch), model, driver)
        if device == "gpu":
            raise EnvironmentError_("no usable NVIDIA GPU here: `warpsmith doctor` says why; or use --device cpu")
    wanted = arch or DEFAULT_ARCH
    return Machine(Target(kind="cpu", arch=wanted), model_for(wanted), None)


def _gpu() -> tuple[DeviceModel, str | None] | None:
    from warpsmith.sandbox.cuda.driver import DriverError
    from warpsmith.sandbox.cuda.facts import device_model, identity

    try:
        return device_model(0), identity(0).driver
    except (DriverError, EnvironmentError_, OSError):
        return None


def specs_of(bench: Bench) -> dict[str, KernelSpec]:
    """Search spaces by family name, the preferred first, those of the rewritten graph last. UserError where nothing can
    be launched at this size."""
    plan = bench.plan()
    found = [spec for way in plan.ways for spec in specs_for(way, bench.machine.model)]
    if plan.rewritten is not None:
        after = [spec for way in plan.rewritten.ways for spec in specs_for(way, bench.machine.model)]
        found += [after_rewrites(spec, plan.rewritten.rewrites) for spec in after]
    invalid = [spec.check(spec.naive) if spec.check(spec.sensible()) else None for spec in found]
    if all(reason is not None for reason in invalid):
        reasons = "; ".join(reason.message for reason in invalid if reason is not None)
        raise UserError(
            f"no kernel can be launched at this size ({reasons}): make the problem smaller with --set NAME=VALUE; "
            f"{bench.problem.settable_text()}"
        )
    return {spec.family.name: spec for spec in found}


def roof_for(specs: Mapping[str, KernelSpec], machine: Machine) -> Roof | None:
    """The least time the problem's region can take on the machine; None where it is no region."""
    if not specs:
        return None
    region = next(iter(specs.values())).region
    return roof_of(floor_us(region, machine.model), machine.model)


def _roofs_after_rewrites(specs: Mapping[str, KernelSpec], machine: Machine) -> dict[str, Roof]:
    """By family: an exact rewrite may take fewer bytes and operations than the problem's own graph."""
    return {
        name: roof_of(floor_us(spec.region, machine.model), machine.model)
        for name, spec in specs.items()
        if isinstance(spec.family, RewrittenFamily)
    }


def versions(compiler: Compiler) -> dict[str, str]:
    """Versions that a figure depends on."""
    found = {"warpsmith": __version__, "python": platform.python_version(), "nvrtc": compiler.nvrtc_version}
    for name in _VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_manifest(store: RunStore, bench: Bench, config: Mapping[str, Any], seed: int) -> None:
    """manifest.json of a new run; where it cannot be written, the run is taken away again."""
    manifest = RunManifest(
        run_id=store.run_id, created=utc_now(), config=dict(config), versions=versions(bench.compiler),
        commit=commit(), device=bench.machine.label, arch=bench.machine.target.arch,
        driver=bench.machine.driver, seed=seed, problem_hash=bench.problem.hash,
        problem_path=str(bench.problem.ref.path),
    )  # fmt: skip
    try:
        store.write_manifest(manifest)
    except BaseException:
        store.discard()
        raise


def open_run(folder: Path, bench: Bench) -> RunStore:
    """A run to go on with; UserError where it is of another problem or another machine."""
    store = RunStore.open(folder)
    manifest = store.manifest()
    fault = None
    if manifest.problem_hash != bench.problem.hash:
        fault = f"is a run of another problem ({manifest.problem_path}, or other --set, --inputs or --mode)"
    elif manifest.device != bench.machine.label:
        fault = f"was made on {manifest.device}, this is {bench.machine.label}"
    if fault is not None:
        store.close()
        raise UserError(f"{folder} {fault}: leave --resume out to start a new run")
    return store
