"""What a suite run comes to: speed-ups over each baseline, geometric means, fast_p, labels and failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from warpsmith.app.suite.records import ProblemRow, SuiteManifest, SuiteProblem
from warpsmith.kernels.records import Speedup
from warpsmith.tools.measurement.baseline_records import ALWAYS, COMPILE, EAGER, MAX_AUTOTUNE, BaselineRecord

BEST = "min(eager, compile)"
PRECISE = "compile as precise as eager"
"""torch.compile where its own outputs would pass for those of a kernel: it convolves in TF32 what eager convolves in
float32, if that is faster."""
AS_PRECISE = 64.0
"""Times eager's rms error that the judge allows a float32 kernel."""
COMPARED = (EAGER, COMPILE, PRECISE, BEST, "reduce-overhead", MAX_AUTOTUNE)
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Those that KernelBench's analysis prints."""
How = Literal["paired", "through eager"]
_RUN_FOLDER = re.compile(r"\S*/runs/\S+")
_PLACES = re.compile(r"(?<=the file):\d+|(?<=[a-z])_\d+\b| at 0x[0-9a-f]+")
"""Lines, numbers of nodes and addresses."""
Baselines = Mapping[tuple[str, str], BaselineRecord]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A speed-up, and how it was had."""

    speedup: Speedup
    how: How


def ratios(row: ProblemRow, baselines: Baselines) -> dict[str, Ratio]:
    """Speed-ups of a verified row over the baselines that were measured. Empty where nothing was timed."""
    if row.status != "verified" or row.time_us is None:
        return {}
    found = {name: Ratio(value, "paired") for name, value in row.speedup.items()}
    for mode in (*ALWAYS, MAX_AUTOTUNE):
        record = baselines.get((row.key, mode))
        if mode not in found and record is not None and (made := _through_eager(row, record)) is not None:
            found[mode] = Ratio(made, "through eager")
    if COMPILE in found and row.baseline_errors.get(COMPILE, AS_PRECISE + 1) <= AS_PRECISE:
        found[PRECISE] = found[COMPILE]
    if EAGER in found and COMPILE in found:
        # The faster baseline is the one over which the speed-up is smaller.
        found[BEST] = min(found[EAGER], found[COMPILE], key=lambda one: one.speedup.value)
    elif EAGER in found and _cannot_compile(row.key, baselines):
        found[BEST] = found[EAGER]
    return found


def _cannot_compile(key: str, baselines: Baselines) -> bool:
    record = baselines.get((key, COMPILE))
    return record is not None and record.failure is not None


def _through_eager(row: ProblemRow, record: BaselineRecord) -> Speedup | None:
    """Eager over candidate, measured in pairs, by eager over the mode, measured in pairs at another time: what changes
    between the two times falls out. The interval is the widest that the two allow."""
    from warpsmith.tools.measurement.statistics import speedup

    over_eager = row.speedup.get(EAGER)
    if over_eager is None or not record.samples or len(record.eager) != len(record.samples):
        return None
    mode = speedup(record.eager, record.samples)
    return Speedup(value=over_eager.value / mode.value, low=over_eager.low / mode.high, high=over_eager.high / mode.low)


@dataclass(frozen=True, slots=True)
class Member:
    """One problem of a suite with its row, where it has one."""

    problem: SuiteProblem
    row: ProblemRow | None
    ratios: Mapping[str, Ratio]

    @property
    def headline(self) -> bool:
        """Whether its speed-up may count: own kernels do the work, and the problem tells right from trivial."""
        return bool(self.ratios) and self.row is not None and self.row.provenance != "library" and self.payable

    @property
    def payable(self) -> bool:
        """Whether the problem's checks refuse trivial answers, as far as that is known."""
        return self.row is None or self.row.payable is not False


def members(manifest: SuiteManifest, rows: Mapping[str, ProblemRow], baselines: Baselines) -> list[Member]:
    """All problems of the suite, in order."""
    return [
        Member(problem, row, ratios(row, baselines) if row is not None else {})
        for problem in manifest.problems
        for row in (rows.get(problem.key),)
    ]


def geomean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def compared(group: Sequence[Member], name: str) -> dict[str, Any]:
    """The group against one baseline. `raw`: geometric mean over the verified results that own kernels take part in, of
    problems that tell right from trivial (`n` of them). `failures_at_1`: the same over all such problems (`of`), where
    what is not verified, not timed or `library` counts as 1.0; `slower_at_1`: what is slower counts as 1.0 too.
    `fast_p`: the share of all with a speed-up above p. `everything`: over all speed-ups, `library` included."""
    pool = [one for one in group if one.payable]
    if name in (MAX_AUTOTUNE, PRECISE):
        # There is one for a part of the suite alone: the rest says nothing here.
        pool = [one for one in pool if name in one.ratios]
    got = {one.problem.key: one.ratios[name].speedup.value for one in pool if one.headline and name in one.ratios}
    every = [one.ratios[name].speedup.value for one in group if name in one.ratios]
    if not every:
        nothing = dict.fromkeys(("raw", "failures_at_1", "slower_at_1", "everything"))
        return {"n": 0, "of": len(pool), **nothing, "fast_p": {}}
    values = [got.get(one.problem.key, 1.0) for one in pool]
    return {
        "n": len(got),
        "of": len(pool),
        "raw": geomean(got.values()),
        "failures_at_1": geomean(values),
        "slower_at_1": geomean([max(1.0, value) for value in values]),
        "everything": geomean(every),
        "fast_p": {str(p): sum(v > p for v in got.values()) / len(pool) if pool else None for p in THRESHOLDS},
    }


def figures(manifest: SuiteManifest, rows: Mapping[str, ProblemRow], baselines: Baselines) -> dict[str, Any]:
    """The whole summary; summary.json, and what `--json` prints."""
    group = members(manifest, rows, baselines)
    levels = sorted({one.problem.level for one in group if one.problem.level is not None})
    families = sorted({one.row.family for one in group if one.row is not None and one.row.family is not None})
    done = [one.row for one in group if one.row is not None]
    return {
        "problems": len(group),
        "ended": len(done),
        "open": len(group) - len(done),
        "statuses": dict(Counter(row.status for row in done)),
        "labels": labels(done),
        "not_payable_verified": sum(1 for row in done if row.payable is False and row.status == "verified"),
        "kernelbench_shared": _shared(group),
        "not_payable": [one.problem.key for one in group if not one.payable],
        "evaluations": sum(row.screened for row in done),
        "full_verdicts": sum(row.full_verdicts for row in done),
        "failures": dict(sum((Counter(row.failures) for row in done), Counter())),
        "models": models_total(done),
        "search_seconds": round(sum(row.seconds for row in done), 1),
        "spent_s": {
            name: round(sum(getattr(row, f"{name}_s") for row in done), 1) for name in ("compile", "verify", "time")
        },
        "autotuned": list(manifest.autotuned),
        "speedups": _against_all(group),
        "levels": {str(n): _against_all([one for one in group if one.problem.level == n]) for n in levels},
        "families": {
            name: _against_all([one for one in group if one.row is not None and one.row.family == name])
            for name in families
        },
        "reasons": reasons(group),
    }


def _shared(group: Sequence[Member]) -> list[str]:
    """Keys of problems whose level and number another one has as well: files of one number in several folders."""
    numbered = [one.problem for one in group if one.problem.level is not None and not one.problem.overrides]
    places = Counter((problem.level, problem.number) for problem in numbered)
    return [problem.key for problem in numbered if places[problem.level, problem.number] > 1]


def _against_all(group: Sequence[Member]) -> dict[str, Any]:
    return {name: compared(group, name) for name in COMPARED}


def labels(done: Sequence[ProblemRow]) -> dict[str, dict[str, int]]:
    """How many verified results have which label."""
    verified = [row for row in done if row.status == "verified"]

    def count(of: Callable[[ProblemRow], str | None]) -> dict[str, int]:
        return dict(Counter(str(of(row)) for row in verified))

    return {
        "provenance": count(lambda row: row.provenance),
        "precision_class": count(lambda row: row.precision_class),
        "verified_on": count(lambda row: row.verified_on),
    }


def models_total(done: Sequence[ProblemRow]) -> dict[str, Any] | None:
    """What models were asked over all problems; None where none was. A price that is not known makes the cost null."""
    used = [row.models for row in done if row.models is not None]
    if not used:
        return None
    costs = [one.cost_usd for one in used]
    return {
        "questions": sum(one.questions for one in used),
        "answered": sum(one.answered for one in used),
        "calls": sum(one.calls for one in used),
        "tokens": sum(one.tokens for one in used),
        "cost_usd": None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    }


def reasons(group: Sequence[Member]) -> list[dict[str, Any]]:
    """Why problems have no verified result, the commonest reason first, with the problems that it holds for."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in group:
        if one.row is not None and one.row.status != "verified":
            key = (one.row.status, _general(one.row.reason or "no reason was given", one.problem))
            found.setdefault(key, []).append(one.problem.key)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return [{"status": status, "reason": reason, "problems": keys} for (status, reason), keys in ordered]


def short_reason(reason: str, problem: SuiteProblem) -> str:
    """A reason without its remedy and without the folders of the problem's file."""
    return reason.partition("; ")[0].replace(problem.path, Path(problem.path).name)


def _general(reason: str, problem: SuiteProblem) -> str:
    """A reason without what differs from problem to problem, so that equal ones are counted together."""
    text = _RUN_FOLDER.sub("its run folder", short_reason(reason, problem))
    for name in (Path(problem.path).name, problem.name):
        text = re.sub(rf"\b{re.escape(name)}\b", "the file", text)
    text = _PLACES.sub("", text)
    return text if len(text) <= 160 else f"{text[:159]}…"
