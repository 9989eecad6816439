"""How a suite's result is worded: counts, figures with their labels, and failures at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpsmith.app.wording import count, printable

_REASONS = 8
_KEYS = 6


def summary_text(document: Mapping[str, Any]) -> str:
    """The end of a suite run for a reader."""
    statuses = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in document["statuses"].items())
    lines = [
        f"{count(document['problems'], 'problem')} on {document['device'] or 'no device yet'}: "
        f"{statuses or 'none has ended'}" + (f", {document['open']} open" if document["open"] else "")
    ]
    lines += _labels(document)
    lines += _not_counted(document)
    spent = f"  {count(document['evaluations'], 'evaluation')}, {count(document['full_verdicts'], 'full verdict')}"
    parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in document["spent_s"].items())
    lines.append(f"{spent}, {document['search_seconds']:.0f} s of search ({parts})")
    if document["failures"]:
        failed = sorted(document["failures"].items(), key=lambda item: -item[1])
        lines.append(f"  candidates that failed: {', '.join(f'{number} {status}' for status, number in failed)}")
    lines += _models(document["models"])
    lines += _speedups(document)
    lines += _failures(document)
    suite = document["suite"]
    if not document["complete"]:
        why = {
            "minutes": "the time was up",
            "evaluations": "the evaluations were used up",
            "cost": "the money was spent",
        }
        stuck = f"{count(document.get('stuck', 0), 'problem')} could not be gone on with"
        told = why.get(
            str(document["stop"]), stuck if document.get("stuck") and not document["stop"] else "it was stopped"
        )
        lines.append(f"{told}; go on with --resume {suite}")
    lines.append(f"  {suite}/results.csv, summary.json")
    return printable("\n".join(lines))


def _labels(document: Mapping[str, Any]) -> list[str]:
    found = document["labels"]
    if not found["provenance"]:
        return []
    parts = [
        ", ".join(f"{number} {name}" for name, number in sorted(found[kind].items()))
        for kind in ("provenance", "precision_class", "verified_on")
    ]
    return [f"  {'; '.join(parts)}"]


def _not_counted(document: Mapping[str, Any]) -> list[str]:
    """What is left out of the figures, or of KernelBench's form, and why."""
    lines = []
    if number := document["not_payable_verified"]:
        lines.append(
            f"  {number} of the verified not payable, so in none of the means: their problems take trivial answers for "
            "right (summary.json names them: not_payable)"
        )
    if shared := document["kernelbench_shared"]:
        lines.append(
            "  kernelbench/: several problems share a level and number, and are samples of one there: "
            + ", ".join(shared[:_KEYS])
        )
    return lines


def _models(models: Mapping[str, Any] | None) -> list[str]:
    if models is None:
        return []
    cost = "cost not known" if models["cost_usd"] is None else f"${models['cost_usd']:.4f}"
    answered = f"{models['answered']} of {count(models['questions'], 'question')} answered"
    return [f"  models: {answered}, {count(models['calls'], 'call')}, {models['tokens']:,} tokens, {cost}"]


def _speedups(document: Mapping[str, Any]) -> list[str]:
    """A line for each baseline that something was held against."""
    lines = []
    for name, one in document["speedups"].items():
        if one["raw"] is None:
            continue
        fast = ", ".join(f"fast_{p} {one['fast_p'][p]:.0%}" for p in ("1.0", "1.5", "2.0"))
        lines.append(
            f"  over {name}: geomean {one['raw']:.3f} raw (n={one['n']}), {one['failures_at_1']:.3f} with failures at "
            f"1.0 (of {one['of']}); {fast}"
        )
    if not lines and document["labels"]["verified_on"]:
        lines.append("  no times were taken, so no speed-up is claimed; estimates are the cost model's")
    return lines


def _failures(document: Mapping[str, Any]) -> list[str]:
    """Why problems have no result, the commonest first."""
    found = document["reasons"]
    lines = []
    for one in found[:_REASONS]:
        keys = ", ".join(one["problems"][:_KEYS]) + (", …" if len(one["problems"]) > _KEYS else "")
        lines.append(f"  {len(one['problems']):>3} {one['status'].replace('_', ' ')}: {one['reason']} ({keys})")
    if len(found) > _REASONS:
        lines.append(f"  and {count(len(found) - _REASONS, 'further reason')}: summary.json")
    return lines
