"""The main job: one problem in, a run folder with the fastest verified kernels out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from warpsmith.agents.registry import make_policy
from warpsmith.app.audit import audit_problem
from warpsmith.app.display import Display
from warpsmith.app.ending import interrupt_code, interrupt_says
from warpsmith.app.finish import write_extras
from warpsmith.app.report_space import space_document
from warpsmith.app.resume import kept
from warpsmith.app.wording import count, verdict_text
from warpsmith.app.workbench import Bench, open_bench, open_run, roof_for, specs_of, write_manifest
from warpsmith.graph.run import SearchResult, run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import SCHEMA_VERSION
from warpsmith.tools.profiling.insight import Wanted
from warpsmith.tools.runs.store import RunStore

RENEWABLE = ("budget", "verdicts", "minutes", "max_cost", "counters")
"""Settings that a resumed run may be given anew."""
NOTHING_VERIFIED = 1
BUDGET_ENDED = 3


@dataclass(frozen=True, slots=True)
class OptimizeSettings:
    """Flags of `warpsmith optimize`, as the command line gives them."""

    problem: str
    device: str = "auto"
    arch: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    inputs: str | None = None
    mode: str = "eval"
    precision: str = "exact"
    policy: str = "builtin"
    budget: int = 64
    verdicts: int = 4
    minutes: float | None = None
    max_cost: float | None = None
    counters: Wanted = "best"
    resume: Path | None = None
    seed: int = 0
    out: Path = Path("runs")
    jobs: int | None = None
    given: frozenset[str] = frozenset()
    """Names of the settings that the command line gives; a resumed run keeps its own values of the others."""

    def config(self) -> dict[str, Any]:
        """What the manifest records."""
        plain = asdict(self) | {"overrides": dict(self.overrides)}
        del plain["given"]
        return {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that ended: where it lies, what it found, and its exit code."""

    folder: Path
    result: SearchResult
    device: str

    @property
    def exit_code(self) -> int:
        """As in docs/interface.md."""
        if self.result.interrupted:
            return interrupt_code(self.result.drained_by)
        if self.result.best is not None:
            return 0
        return BUDGET_ENDED if self.result.stop == "minutes" else NOTHING_VERIFIED


def run_optimize(settings: OptimizeSettings, display: Display) -> int:
    """Runs the command and shows the result; returns the exit code."""
    with interrupt_says("nothing was evaluated yet; run the command again"):
        _refuse_early(settings)
        settings = _as_before(settings)
        display.phase(f"reading {settings.problem}")
        bench = open_bench(
            settings.problem, device=settings.device, arch=settings.arch, overrides=settings.overrides,
            inputs=settings.inputs, mode=settings.mode, jobs=settings.jobs,
        )  # fmt: skip
        finished = optimize_bench(bench, settings, display)
    display.result(document(finished), summary(finished))
    return finished.exit_code


def optimize_bench(bench: Bench, settings: OptimizeSettings, display: Display) -> Finished:
    """Searches an opened problem and leaves `best/` in its run folder."""
    specs = specs_of(bench)
    store = _new_run(bench, specs, settings) if settings.resume is None else _old_run(settings.resume, bench, settings)
    with store, interrupt_says(f"everything finished so far is kept; go on with --resume {store.folder}"):
        display.phase(f"{bench.plan().describe().splitlines()[0]}; {bench.machine.label}")
        result = asyncio.run(_search(bench, specs, store, settings, display))
        if result.best is not None:
            store.write_best(store.get_candidate(result.best.candidate), result.best)
        write_extras(store, result.best is not None, display)
        return Finished(store.folder, result, bench.machine.label)


def _new_run(bench: Bench, specs: Mapping[str, KernelSpec], settings: OptimizeSettings) -> RunStore:
    """A run folder with its manifest."""
    store = RunStore.create(Path(bench.problem.ref.path).stem, settings.out)
    problem = {
        "problem": bench.problem.ref.model_dump(mode="json"), "given": settings.problem,
        "space": space_document(specs, bench.machine.model),
    }  # fmt: skip
    write_manifest(store, bench, settings.config() | problem, settings.seed)
    return store


def _old_run(folder: Path, bench: Bench, settings: OptimizeSettings) -> RunStore:
    """The run to go on with; its manifest takes the limits that it was given anew."""
    store = open_run(folder, bench)
    manifest = store.manifest()
    limits = {name: getattr(settings, name) for name in RENEWABLE}
    if any(manifest.config.get(name) != value for name, value in limits.items()):
        store.write_manifest(manifest.model_copy(update={"config": manifest.config | limits}))
    return store


async def _search(
    bench: Bench, specs: Mapping[str, KernelSpec], store: RunStore, settings: OptimizeSettings, display: Display
) -> SearchResult:
    wanted = SearchSettings(
        policy=settings.policy, budget=settings.budget, full_verdicts=settings.verdicts, minutes=settings.minutes,
        seed=settings.seed, resume=settings.resume is not None,
    )  # fmt: skip

    def notify(kind: str, data: Mapping[str, Any]) -> None:
        # The search tells of outcomes itself, with their place in it.
        if kind == "phase":
            display.phase(str(data["text"]))

    roof = roof_for(specs, bench.machine)
    async with bench.evaluator(specs, store, roof, notify, counters=settings.counters) as evaluator:
        await audit_problem(evaluator, store, display)
        if evaluator.isolation is not None:
            facts = store.manifest().model_copy(update={"isolation": evaluator.isolation.document()})
            store.write_manifest(facts)
        return await run_search(list(specs.values()), evaluator, store, wanted, display.event)


def _refuse_early(settings: OptimizeSettings) -> None:
    """Faults of the flags that need no problem to be seen."""
    if settings.precision != "exact":
        raise UserError(f"--precision {settings.precision} is not there yet; use --precision exact")
    for name, value in (("--minutes", settings.minutes), ("--max-cost", settings.max_cost)):
        if value is not None and not isfinite(value):
            raise UserError(f"{name} {value}: give a number, or leave it out for no limit")
    make_policy(settings.policy)


def _as_before(settings: OptimizeSettings) -> OptimizeSettings:
    """A run that is resumed keeps its settings where the command line says nothing of them, and is refused where the
    command line says otherwise."""
    if settings.resume is None:
        return settings
    with RunStore.open(settings.resume, writable=False) as store:
        manifest = store.manifest()
    given = {name: getattr(settings, name) for name in settings.given if hasattr(settings, name)}
    return replace(settings, **kept(manifest, settings.resume, given))


def document(finished: Finished) -> dict[str, Any]:
    """The one JSON document of `--json`."""
    result = finished.result
    return {
        "schema_version": SCHEMA_VERSION,
        "run": str(finished.folder),
        "device": finished.device,
        "best": result.best.model_dump(mode="json") if result.best else None,
        "screened": result.screened,
        "full_verdicts": result.full_verdicts,
        "stop": result.stop,
        "lineage": list(result.lineage),
        "seconds": round(result.elapsed_s, 3),
    }


def summary(finished: Finished) -> str:
    """The same for a reader."""
    result = finished.result
    seen = count(result.screened, "candidate")
    counted = f"{seen}, {count(result.full_verdicts, 'full verdict')}, {result.elapsed_s:.1f} s"
    if result.best is None:
        why = f"failures are in {finished.folder}/results.jsonl" if result.full_verdicts else "none was judged in full"
        text = f"nothing verified ({counted}); {why}"
    else:
        text = f"{verdict_text(result.best)}\n  {counted}\n  {finished.folder}/best"
    if result.interrupted:
        text += f"\ninterrupted; go on with --resume {finished.folder}"
    return text
