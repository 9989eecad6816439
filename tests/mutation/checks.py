"""What has to fail when a defence is broken, run in the process itself: no worker, so that a mutant takes a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from redteam.arena import (
    ARCH,
    BROKEN,
    REFUSED,
    Finding,
    Folder,
    Slotted,
    attacks,
    candidate_of,
    complaint,
    hidden_shapes,
    launch,
    spec_of,
    written,
)
from redteam.tasks import MATMUL, MATMUL_SOURCE, over_matmul

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import (
    Candidate,
    CompileReport,
    LibraryStep,
    Outcome,
    Quantiles,
    TimingReport,
    VerifyReport,
)
from warpsmith.sandbox.cuda.library import LibraryError, library_call
from warpsmith.tools import outcomes
from warpsmith.tools.compile import Compiler
from warpsmith.tools.measurement.timing import CANDIDATE, Samples, timing_report
from warpsmith.tools.target import Target
from warpsmith.tools.verification.hidden_shapes import Trial, judge_at
from warpsmith.tools.verification.verify import run_job

TARGET = Target(kind="cpu", arch=ARCH)


def attacks_are_caught(names: list[str], cache: Path, folder: Path) -> list[str]:
    """Complaints about these attacks and their controls, the control first: it leaves its answer where it can."""
    by_name = {attack.name: attack for attack in attacks()}
    found: list[str] = []
    with Compiler(ARCH, cache_dir=cache, jobs=1) as compiler:
        for name in names:
            attack = by_name[name]
            problem = written(attack.task, folder)
            control = _judged(attack.honest, problem, folder / f"{name}-control", compiler)
            if control.status != "ok":
                found.append(f"control of {name}: {control}")
            said = complaint(attack, _judged(attack.entry, problem, folder / name, compiler))
            if said is not None:
                found.append(said)
    return found


def _judged(entry: Any, problem: Problem, folder: Path, compiler: Compiler) -> Finding:
    try:
        candidate = candidate_of(entry, problem, folder)
    except UserError as error:
        return Finding(REFUSED, None, str(error))
    except Exception as error:
        return Finding(BROKEN, type(error).__name__, str(error))
    report = compiler.compile(candidate)
    outcome = outcomes.compiled(candidate, report, problem.hash, None)
    if report.ok:
        try:
            verdict, warnings = _verdict(problem.ref, candidate, report, "full")
        except Exception as error:
            return Finding(BROKEN, type(error).__name__, str(error))
        outcome = outcomes.verified(outcome, verdict, warnings, "full")
    if outcome.correct and isinstance(entry, Slotted):
        outcome = asyncio.run(_elsewhere(entry, problem, candidate, outcome, compiler))
    kind, message = (outcome.failure.kind, outcome.failure.message) if outcome.failure else (None, "")
    return Finding(outcome.status, kind, message, outcome)


def _verdict(ref: Any, candidate: Candidate, report: CompileReport, level: str) -> tuple[VerifyReport, list[str]]:
    reply = run_job(
        {
            "problem": ref.model_dump(mode="json"),
            "target": TARGET.model_dump(mode="json"),
            "plan": candidate.plan.model_dump(mode="json"),
            "report": report.model_dump(mode="json"),
            "level": level,
        }
    )
    return VerifyReport.model_validate(reply["report"]), list(reply["warnings"])


async def _elsewhere(
    entry: Slotted, problem: Problem, candidate: Candidate, outcome: Outcome, compiler: Compiler
) -> Outcome:
    hidden = hidden_shapes(problem, {entry.family: spec_of(problem, entry.family)}, TARGET)

    async def run(trial: Trial) -> VerifyReport:
        return _verdict(trial.variant.ref, trial.candidate, trial.report, "quick")[0]

    return await judge_at(outcome, await hidden.trials(candidate, compiler), run, on_gpu=False)


def _outcome(**fields: Any) -> Outcome:
    return Outcome(candidate="c", problem_hash="p", status="ok", **fields)


def roof_is_a_gate() -> list[str]:
    """A time below what the device can do is not believed."""
    quick = Quantiles(p10=1.0, p50=1.0, p90=1.0, n=9)
    timing = TimingReport(device="d", time_us=quick)
    found = outcomes.timed(_outcome(), timing, (), outcomes.Roof(floor_us=10.0, gate_us=9.0))
    return [] if found.status == "suspicious" else [f"a tenth of the floor is {found.status}"]


def speedups_have_their_sign() -> list[str]:
    """Half the baseline's time is a speed-up of two."""
    taken = {CANDIDATE: (5.0,) * 9, "eager": (10.0,) * 9}
    report = timing_report(Samples(device="d", method="events", samples=taken))
    value = report.speedup["eager"].value if report else None
    return [] if value == 2.0 else [f"half the time gives {value}"]


def what_was_not_timed_has_no_figure() -> list[str]:
    """No samples, no report."""
    report = timing_report(Samples(device="d", method="events", samples={"eager": (10.0,)}))
    return [] if report is None else [f"no sample gives {report}"]


def library_keywords_are_listed(folder: Path) -> list[str]:
    """A keyword that is not listed is refused when a candidate is loaded, and again by what launches it."""
    step: dict[str, Any] = {"library": "mm", "args": ["in0", "in1"], "out": "out0", "kwargs": {"beta": 2.0}}
    entry, found = Folder(MATMUL_SOURCE, launch(over_matmul(), step)), []
    try:
        candidate_of(entry, written(MATMUL, folder), folder / "candidate")
        found.append("loaded with beta")
    except UserError as error:
        if "beta" not in str(error):
            found.append(f"loading says: {error}")
    values = {name: torch.zeros(2, 2) for name in ("in0", "in1", "out0")}
    try:
        library_call(LibraryStep.model_validate(step), values)
        found.append("launched with beta")
    except LibraryError as error:
        if "beta" not in str(error):
            found.append(f"launching says: {error}")
    return found


def entropy_is_secret(folder: Path) -> list[str]:
    """Two sessions draw different inputs."""
    from redteam.tasks import AFFINE

    from warpsmith.kernels.problem import load_ref
    from warpsmith.tools.verification.session import _current as current
    from warpsmith.tools.verification.session import session_for

    ref = written(AFFINE, folder).ref
    assert load_ref(ref) is not None
    drawn = []
    for _ in range(2):
        current.clear()
        session = session_for({"problem": ref.model_dump(mode="json"), "target": TARGET.model_dump(mode="json")})
        drawn.append(session.input_set("normal").inputs[0])
    return [] if bool((drawn[0] != drawn[1]).any()) else ["two sessions draw the same inputs"]


def degenerate_problems_are_named(folder: Path) -> list[str]:
    """A problem whose answer is zero whatever comes in is not paid on; a plain one is."""
    from redteam.arena import Task
    from redteam.tasks import AFFINE, model

    from warpsmith.tools.verification.audit import audit
    from warpsmith.tools.verification.session import session_for

    found = []
    zero = Task("always_zero", model("(x - x.mean(1, keepdim=True)).mean(1) * 0", "torch.rand(8, 16)"), AFFINE.honest)
    for task, wanted in ((zero, False), (AFFINE, True)):
        problem = written(task, folder)
        payload = {"problem": problem.ref.model_dump(mode="json"), "target": TARGET.model_dump(mode="json")}
        said = audit(session_for(payload), problem.hash)
        if said.payable != wanted:
            found.append(f"{task.name}: payable {said.payable}, accepted {said.accepted}")
    return found


def hangs_are_remembered(folder: Path) -> list[str]:
    """A kernel that was seen to hang is known by its text and plan."""
    from redteam.tasks import AFFINE

    from warpsmith.kernels.records import Failure
    from warpsmith.tools.hang_cache import HangCache

    candidate = candidate_of(AFFINE.honest, written(AFFINE, folder), folder / "candidate")
    cache = HangCache(folder, problem_hash="p", target=TARGET)
    failure = Failure(stage="launch", kind="hang", message="no end in sight")
    before = cache.get(candidate)
    cache.note(candidate, _outcome().model_copy(update={"status": "hang", "failure": failure}))
    after = HangCache(folder, problem_hash="p", target=TARGET).get(candidate)
    other = HangCache(folder, problem_hash="q", target=TARGET).get(candidate)
    known = [before is None, after is not None and after.kind == "hang", other is None]
    return [] if all(known) else [f"known before, after, to another problem: {before}, {after}, {other}"]


IN_FOLDER: dict[str, Callable[[Path], list[str]]] = {
    check.__name__: check
    for check in (entropy_is_secret, degenerate_problems_are_named, hangs_are_remembered, library_keywords_are_listed)
}
FUNCTIONS: dict[str, Callable[[], list[str]]] = {
    check.__name__: check for check in (roof_is_a_gate, speedups_have_their_sign, what_was_not_timed_has_no_figure)
}


def run(request: dict[str, Any]) -> list[str]:
    """All complaints of one request; empty: nothing was noticed."""
    cache, folder = Path(request["cache"]), Path(request["folder"])
    check = request["check"]
    if isinstance(check, list):
        return attacks_are_caught(check, cache, folder)
    return IN_FOLDER[check](folder) if check in IN_FOLDER else FUNCTIONS[check]()
