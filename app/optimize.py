"""The main job: one problem in, a run folder with the fastest verified kernels out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from warpsmith.agents.llm.accounts import Caps
from warpsmith.agents.llm.prices import Prices
from warpsmith.agents.policy import Policy, Writer
from warpsmith.agents.registry import crew_of
from warpsmith.app.audit import audit_problem
from warpsmith.app.display import Display
from warpsmith.app.ending import interrupt_code, interrupt_says
from warpsmith.app.finish import write_extras
from warpsmith.app.freeform import means_for, specs_for_policy, specs_or_none
from warpsmith.app.models import open_policy
from warpsmith.app.models_used import models_line, models_used
from warpsmith.app.reference import reopened
from warpsmith.app.report_space import space_document
from warpsmith.app.resume import kept
from warpsmith.app.start import STDIN, Start, as_text, read_start
from warpsmith.app.wording import count, outcome_text, verdict_text
from warpsmith.app.workbench import Bench, bench_for, open_bench, open_run, roof_for, write_manifest
from warpsmith.graph.run import SearchResult, run_search
from warpsmith.graph.state import Means, SearchSettings
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import SCHEMA_VERSION, Candidate, Outcome
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.profiling.insight import Wanted
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.workers import Notify

RENEWABLE = ("budget", "verdicts", "minutes", "max_cost", "max_tokens", "max_calls", "price", "counters")
"""Settings that a resumed run may be given anew."""
First = Callable[[Evaluator], Awaitable[None]]
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
    max_tokens: int | None = None
    max_calls: int | None = None
    price: tuple[str, ...] = ()
    """What tokens cost: `IN/OUT` or `MODEL=IN/OUT`, USD per million."""
    counters: Wanted = "best"
    resume: Path | None = None
    start: str | None = None
    """A kernel to start from: folder, `.cu` file, or `-` for standard input."""
    plan: Path | None = None
    """The launch plan of a start that has none beside it."""
    seed: int = 0
    out: Path = Path("runs")
    jobs: int | None = None
    rollout: bool = False
    """Whether every candidate gets the full verdict in the end, for trajectories that teach."""
    given: frozenset[str] = frozenset()
    """Names of the settings that the command line gives; a resumed run keeps its own values of the others."""

    def caps(self) -> Caps:
        """What may be spent on models."""
        return Caps(
            max_cost=self.max_cost, max_tokens=self.max_tokens, max_calls=self.max_calls, minutes=self.minutes,
            prices=self.price,
        )  # fmt: skip

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
    start: Outcome | None = None
    """The verdict on the kernel that was given to start from; None without one, or where it was not judged."""

    @property
    def exit_code(self) -> int:
        """As in docs/interface.md."""
        if self.result.interrupted:
            return interrupt_code(self.result.drained_by)
        if self.result.best is not None:
            return 0
        return BUDGET_ENDED if self.result.stop in ("minutes", "cap") else NOTHING_VERIFIED


def run_optimize(settings: OptimizeSettings, display: Display) -> int:
    """Runs the command and shows the result; returns the exit code."""
    with interrupt_says(_interrupted(settings)):
        _refuse_early(settings)
        start = read_start(settings.start, settings.plan) if settings.start is not None else None
        settings = _as_before(settings)
        display.phase(f"reading {settings.problem}")
        bench = _opened(settings)
        finished = optimize_bench(bench, settings, display, start=start)
    if settings.start == STDIN:
        display.note(summary(finished))
    display.result(document(finished), _piped(finished) if settings.start == STDIN else summary(finished))
    return finished.exit_code


def _interrupted(settings: OptimizeSettings) -> str:
    """What an interrupt says before the search begins."""
    if settings.resume is None:
        return "nothing was evaluated yet; run the command again"
    return f"nothing new was evaluated; the run is as it was: go on with --resume {settings.resume}"


def _opened(settings: OptimizeSettings) -> Bench:
    """The bench of the problem that is named; a resumed run whose module a model wrote keeps that one, and never runs
    it here."""
    if settings.resume is not None:
        with RunStore.open(settings.resume, writable=False) as store:
            held = reopened(store.manifest().config)
        if held is not None:
            return bench_for(held, device=settings.device, arch=settings.arch, jobs=settings.jobs)
    return open_bench(
        settings.problem, device=settings.device, arch=settings.arch, overrides=settings.overrides,
        inputs=settings.inputs, mode=settings.mode, jobs=settings.jobs,
    )  # fmt: skip


def _piped(finished: Finished) -> str:
    """What goes on through a pipe: the best kernel with its plan, or nothing."""
    if finished.result.best is None:
        return ""
    with RunStore.open(finished.folder, writable=False) as store:
        return as_text(store.get_candidate(finished.result.best.candidate))


def optimize_bench(
    bench: Bench,
    settings: OptimizeSettings,
    display: Display,
    policy: Policy | None = None,
    start: Start | None = None,
    first: First | None = None,
) -> Finished:
    """Searches an opened problem, from a kernel that is there where one is given, and leaves `best/` in its run folder.
    `policy` stands for the one that is named; `first` is done before any candidate is judged."""
    given = start.candidate(bench.operands, scratch_bytes=bench.foreign.scratch_bytes) if start else None
    if policy is not None:
        specs = specs_or_none(bench, writes=isinstance(policy, Writer))
    else:
        specs = specs_for_policy(bench, settings.policy)
    if settings.resume is not None:
        store = _old_run(settings.resume, bench, settings)
    else:
        store = _new_run(bench, specs, settings, given)
    says = interrupt_says(f"everything finished so far is kept; go on with --resume {store.folder}")
    # A run that is resumed was there before.
    begun = store.kept_if_used() if settings.resume is None else contextlib.nullcontext()
    with store, says, begun:
        if given is not None:
            store.put_candidate(given)
        what = bench.plan().describe().splitlines()[0] if specs else "no family covers it: free-form"
        display.phase(f"{what}; {bench.machine.label}")
        with open_policy(settings.policy, bench, specs, store, settings.caps(), display, given=policy) as opened:
            evaluator = bench.evaluator(
                specs, store, roof_for(specs, bench.machine), _phases(display), counters=settings.counters
            )
            means = means_for(bench, specs, opened)
            result = asyncio.run(_search(evaluator, means, specs, store, settings, display, first))
        if result.best is not None:
            store.write_best(store.get_candidate(result.best.candidate), result.best)
        write_extras(store, result.best is not None, display)
        return Finished(store.folder, result, bench.machine.label, _verdict_on_start(store))


def _verdict_on_start(store: RunStore) -> Outcome | None:
    """The most that is known of the kernel to start from."""
    start = store.manifest().config.get("start_candidate")
    return (store.outcome(start, "full") or store.outcome(start)) if start else None


def _new_run(
    bench: Bench, specs: Mapping[str, KernelSpec], settings: OptimizeSettings, given: Candidate | None
) -> RunStore:
    """A run folder with its manifest."""
    store = RunStore.create(Path(bench.problem.ref.path).stem, settings.out)
    problem = {
        "problem": bench.problem.ref.model_dump(mode="json"), "given": settings.problem,
        "space": space_document(specs, bench.machine.model), "start_candidate": given.id if given else None,
    }  # fmt: skip
    if bench.approval is not None:
        problem["approval"] = bench.approval.document()
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


def _phases(display: Display) -> Notify:
    """The evaluator's phases. The search tells of outcomes itself, with their place in it."""

    def notify(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "phase":
            display.phase(str(data["text"]))

    return notify


async def _search(
    evaluator: Evaluator,
    means: Means,
    specs: Mapping[str, KernelSpec],
    store: RunStore,
    settings: OptimizeSettings,
    display: Display,
    first: First | None,
) -> SearchResult:
    wanted = SearchSettings(
        policy=settings.policy, budget=settings.budget, full_verdicts=settings.verdicts, minutes=settings.minutes,
        seed=settings.seed, resume=settings.resume is not None,
        start_candidate=store.manifest().config.get("start_candidate"),
    )  # fmt: skip
    async with evaluator:
        await audit_problem(evaluator, store, display)
        if evaluator.isolation is not None:
            facts = store.manifest().model_copy(update={"isolation": evaluator.isolation.document()})
            store.write_manifest(facts)
        if first is not None:
            await first(evaluator)
        found = await run_search(list(specs.values()), evaluator, store, wanted, display.event, means=means)
        if settings.rollout and not found.interrupted:
            await _judge_all(evaluator, store, display)
        return found


async def _judge_all(evaluator: Evaluator, store: RunStore, display: Display) -> None:
    """Full verdicts for what has passed the quick check alone: what the search had no verdicts left for, and copies of
    others, whose verdict theirs is."""
    quick = [one.candidate for one in store.outcomes() if one.status == "screened"]
    if quick:
        display.phase(f"full verdicts: {len(quick)}")
        await evaluator.evaluate([store.get_candidate(one) for one in quick], level="full")


def _refuse_early(settings: OptimizeSettings) -> None:
    """Faults of the flags that need no problem to be seen."""
    if settings.precision != "exact":
        raise UserError(f"--precision {settings.precision} is not there yet; use --precision exact")
    for name, value in (("--minutes", settings.minutes), ("--max-cost", settings.max_cost)):
        if value is not None and not isfinite(value):
            raise UserError(f"{name} {value}: give a number, or leave it out for no limit")
    prices = Prices.parse(settings.price)
    crew = crew_of(settings.policy)
    if crew is not None:
        prices.require_use({address.model for address in crew.everybody})


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
        "start": finished.start.model_dump(mode="json") if finished.start else None,
        "screened": result.screened,
        "full_verdicts": result.full_verdicts,
        "stop": result.stop,
        "models": models_used(finished.folder),
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
    if finished.start is not None:
        text += f"\n  started from {outcome_text(finished.start)}"
    if (told := models_line(models_used(finished.folder))) is not None:
        text += f"\n  {told}"
    if result.stop in ("cap", "server"):
        reason = _why_not_asked(finished.folder)
        larger = " and a larger cap" if result.stop == "cap" else ""
        text += f"\nthe models could not be asked any further{reason}; go on with --resume {finished.folder}{larger}"
    if result.interrupted:
        text += f"\ninterrupted; go on with --resume {finished.folder}"
    return text


def _why_not_asked(folder: Path) -> str:
    """What ended the questions to the models: the cap by its name, or what the server said."""
    with RunStore.open(folder, writable=False) as store:
        reasons = [str(event.data["reason"]) for event in store.events() if event.kind == "cap"]
    return f": {reasons[-1]}" if reasons else ""
