"""What a lane does for one problem: search it, or compile and time its baselines; and the row that comes of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from warpsmith.app.display import Display
from warpsmith.app.models_used import models_used
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.suite.baselines import TimedFirst, measure
from warpsmith.app.suite.desk import Desk
from warpsmith.app.suite.folder import newest_run
from warpsmith.app.suite.records import ModelsUsed, ProblemRow, RowStatus
from warpsmith.app.suite.waiting import READING
from warpsmith.app.suite.wire import BaselineJob, Job, Reply, SearchJob
from warpsmith.app.workbench import Bench
from warpsmith.kernels.errors import EnvironmentError_, NotYetError, OutOfMemory, UserError, WarpsmithError
from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore

INFRASTRUCTURE = "infrastructure_error"


def work(job: Job, desk: Desk, display: Display) -> Reply:
    """The reply to a job. KeyboardInterrupt where it is told to stop before a search has begun; what is raised else is
    a mistake of ours."""
    if isinstance(job, BaselineJob):
        return measure(job, desk, display)
    bench: Bench | None = None
    try:
        display.phase(READING)
        bench = desk.bench(job.problem.path, job.problem.overrides, job.mode)
        display.phase("read")
        first = TimedFirst(bench, job.untimed, Path(job.baselines), job.last, display) if job.untimed else None
        with desk.memory(bench, last=job.last) as fits:
            if not fits:
                return Reply(short_of_memory=True)
            finished = optimize_bench(bench, _settings(job), display, first=first)
    except OutOfMemory as error:
        if not job.last and bench is not None and bench.machine.target.kind == "gpu":
            return Reply(short_of_memory=True)
        return Reply(row=_ended(job, bench, "refused", str(error)))
    except NotYetError as error:
        return Reply(row=_ended(job, bench, "not_planned", str(error)))
    except UserError as error:
        if job.resume is not None:
            # What is wrong with a run, or with a file that changed, says nothing of the problem that was searched.
            return Reply(stuck=str(error).splitlines()[0][:600])
        return Reply(row=_ended(job, bench, "refused", str(error)))
    except EnvironmentError_ as error:
        return Reply(machine=str(error))
    except WarpsmithError as error:
        return Reply(failure=f"{type(error).__name__}: {error}"[:2000])
    reply = reply_of(job, bench, finished)
    return reply.model_copy(update={"baselines": first.records}) if first is not None else reply


def _settings(job: SearchJob) -> OptimizeSettings:
    return OptimizeSettings(
        problem=job.problem.path, overrides=job.problem.overrides, mode=job.mode, policy=job.policy, budget=job.budget,
        verdicts=job.verdicts, minutes=job.minutes, max_cost=job.max_cost, price=job.price, counters=job.counters,
        seed=job.seed, out=Path(job.home), resume=Path(job.resume) if job.resume else None,
        rollout=job.rollout,
    )  # fmt: skip


def reply_of(job: SearchJob, bench: Bench, finished: Finished) -> Reply:
    """What a search came to; one that was told to stop has no row yet."""
    row = row_of(job.problem.key, bench.problem.hash, finished.folder, Path(job.home).parent.parent)
    used = row.models
    reply = Reply(cost_usd=(used.cost_usd or 0.0) if used else 0.0, screened=finished.result.screened)
    if finished.result.interrupted:
        return reply.model_copy(update={"stopped": True})
    if finished.result.stop == "server":
        # The search ended with what it had, and goes on where it stopped once the server is back.
        return reply.model_copy(update={"machine": f"the models' server cannot be used any more ({job.problem.key})"})
    if finished.result.best is None and set(row.failures) == {INFRASTRUCTURE}:
        # The machine failed, and nothing was learnt of the problem.
        return reply.model_copy(update={"failure": row.worst or INFRASTRUCTURE})
    row = row.model_copy(
        update={
            "screened": finished.result.screened, "full_verdicts": finished.result.full_verdicts,
            "stop": finished.result.stop, "seconds": round(finished.result.elapsed_s, 3),
        }
    )  # fmt: skip
    return reply.model_copy(update={"row": row.model_copy(update=_best(finished.result.best, row))})


def row_of(key: str, problem_hash: str, run: Path, suite: Path) -> ProblemRow:
    """What the run folder says of failures, models and the problem's checks; nothing of a best one yet."""
    with RunStore.open(run, writable=False) as store:
        outcomes, audit = store.outcomes(), store.manifest().audit
        lines = list(store.lines())
    failed = [outcome for outcome in outcomes if not outcome.correct]
    told = models_used(run)
    return ProblemRow(
        key=key, status="unverified", problem_hash=problem_hash, run=str(run.relative_to(suite)),
        payable=audit.get("payable"), failures=dict(Counter(outcome.status for outcome in failed)),
        worst=_worst(failed), models=ModelsUsed(**told) if told else None,
        compile_s=round(sum(one.compile_s or 0.0 for one in lines), 3),
        verify_s=round(sum(one.verify_s or 0.0 for one in lines), 3),
        time_s=round(sum(one.time_s or 0.0 for one in lines), 3),
    )  # fmt: skip


def _best(best: Outcome | None, row: ProblemRow) -> dict[str, object]:
    """The columns of the fastest verified candidate, or why there is none."""
    if best is None:
        return {"reason": row.worst or "no candidate was judged in full"}
    return {
        "status": "verified", "candidate": best.candidate, "family": best.family, "verified_on": best.verified_on,
        "provenance": best.provenance, "precision_class": best.precision_class, "error_ratio": best.error_ratio,
        "time_us": best.time_us, "samples": best.samples, "estimated_us": best.estimated_us,
        "roofline_fraction": best.roofline_fraction, "own_share": best.own_share, "speedup": best.speedup or {},
        "baseline_errors": best.baseline_errors or {},
        "eager_peak_bytes": best.eager_peak_bytes, "judge_peak_bytes": best.judge_peak_bytes,
    }  # fmt: skip


def _worst(failed: list[Outcome]) -> str | None:
    """The commonest failure, with the message of one that has it."""
    kinds = Counter((o.status, o.failure.kind if o.failure else None) for o in failed)
    if not kinds:
        return None
    (status, kind), number = kinds.most_common(1)[0]
    one = next(o for o in failed if (o.status, o.failure.kind if o.failure else None) == (status, kind))
    message = one.failure.message.splitlines()[0][:200] if one.failure and one.failure.message else ""
    return f"{number} x {status}{f' ({kind})' if kind else ''}: {message}".rstrip(": ")


def _ended(job: SearchJob, bench: Bench | None, status: RowStatus, reason: str) -> ProblemRow:
    """The row of a problem that no search was made for."""
    run = newest_run(Path(job.home))
    suite = Path(job.home).parent.parent
    return ProblemRow(
        key=job.problem.key, status=status, reason=reason.splitlines()[0][:600],
        problem_hash=bench.problem.hash if bench is not None else None,
        run=str(run.relative_to(suite)) if run is not None else None,
    )  # fmt: skip
