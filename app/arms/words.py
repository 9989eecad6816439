"""What a comparison says at its end: a document for programs, a table for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpsmith.app.arms.folder import Comparison, ComparisonFolder
from warpsmith.app.arms.scores import Score
from warpsmith.app.suite.folder import read_manifest
from warpsmith.kernels.records import SCHEMA_VERSION


def document(
    folder: ComparisonFolder, what: Comparison, found: Mapping[str, Score], ends: Mapping[str, Mapping[str, str]], *,
    problems: int, complete: bool,
) -> dict[str, Any]:  # fmt: skip
    """What `--json` prints."""
    devices = {
        read_manifest(path).device for arm in what.arms for seed in what.seeds if (path := folder.begun(arm, seed))
    }
    first = found.get(what.arms[0])
    return {
        "schema_version": SCHEMA_VERSION, "comparison": str(folder.path), "policy": what.arms[0],
        "device": next(iter(devices - {None}), None), "complete": complete, "budget": what.budget,
        "seeds": list(what.seeds), "problems": problems,
        "compared": len({key for score in found.values() for key in score.problems}),
        "mean": {str(at): round(value, 5) for at, value in first.mean.items()} if first else {},
        "arms": {name: _figures(score) for name, score in found.items()},
        "against": {name: dict(end) for name, end in ends.items()},
    }  # fmt: skip


def _figures(score: Score) -> dict[str, Any]:
    return {
        "mean": {str(at): round(value, 5) for at, value in score.mean.items()},
        "standard_error": {str(at): None if e is None else round(e, 5) for at, e in score.error.items()},
        "searches": score.searches, "verified": score.verified, "seconds": round(score.seconds, 1),
        "problems": {key: round(value, 5) for key, value in score.problems.items()},
    }  # fmt: skip


def as_text(document: Mapping[str, Any], folder: ComparisonFolder) -> str:
    """A table for a reader."""
    arms: Mapping[str, Any] = document["arms"]
    kind = "measured" if str(document["device"]).startswith("gpu:") else "estimated"
    compared, left = document["compared"], document["problems"] - document["compared"]
    head = (
        f"best of all / best found ({kind} times on {document['device']}), "
        f"{_counted(compared, 'problem')}{f' ({left} left out, for which nothing right was found)' if left else ''}, "
        f"{_counted(len(document['seeds']), 'seed')}, {_counted(document['budget'], 'evaluation')} each"
    )
    if not arms:
        return f"{head}: nothing was found yet\n  {folder.path}"
    columns = list(next(iter(arms.values()))["mean"])
    width = max(len("evaluations"), *(len(name) for name in arms))
    lines = [head, f"{'evaluations':<{width}}" + "".join(f"{at:>18}" for at in columns) + f"{'verified':>14}"]
    partly = []
    for name, arm in arms.items():
        cells = []
        for at in columns:
            error = arm["standard_error"][at]
            cells.append(f"{arm['mean'][at]:.4f}" + (f" ± {error:.4f}" if error is not None else ""))
        if len(arm["problems"]) < compared:
            partly.append(f"{name} has candidates for {len(arm['problems'])} of {_counted(compared, 'problem')} alone")
        done = document["against"].get(name)
        right = sum(end == "ok" for end in done.values()) if done else arm["verified"]
        lines.append(
            f"{name:<{width}}" + "".join(f"{cell:>18}" for cell in cells) + f"{right}/{arm['searches']}".rjust(14)
        )
    for name, ends in document["against"].items():
        wrong = [f"{key}: {end}" for key, end in ends.items() if end != "ok"]
        partly += [f"{name}: {', '.join(wrong)}"] if wrong else []
    lines += partly
    if not document["complete"]:
        lines.append(f"not all searches have ended: go on with --resume {folder.path}")
    return "\n".join([*lines, f"  {folder.path}"])


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
