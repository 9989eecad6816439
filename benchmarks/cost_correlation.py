"""Rank correlation of the cost model with measured times, by family.

python benchmarks/cost_correlation.py RECORDS.jsonl [--out TABLE.md] [--json]

A record is one measured candidate: `family`, `values`, `time_us`, `features` (a list of LaunchFeatures as
objects) and, optionally, `device` (default NVIDIA H200) and `problem`. Correlations are Spearman's, within a
problem (a search never compares across problems) and averaged by its number of candidates; without `problem`
a family counts as one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DEVICES, DeviceModel
from warpsmith.kernels.errors import UserError, WarpsmithError
from warpsmith.kernels.family import LaunchFeatures

GOAL = 0.6
MIN_GROUP = 5
"""Candidates of one problem below which a rank correlation says nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured candidate with its estimate, microseconds."""

    family: str
    problem: str
    time_us: float
    estimated_us: float


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """How well estimates rank the candidates of a family."""

    family: str
    candidates: int
    problems: int
    spearman: float | None
    """Mean over problems, weighted by their candidates; None if no problem has enough, or if nothing
    varies."""
    loss: float | None
    """Time of the candidate with the lowest estimate over the best time, mean over problems."""


def read_records(path: Path) -> list[Measured]:
    """Records of a JSON-lines file. Raises UserError naming the line that is wrong."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(measured(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not a timing record ({error!r})") from error
    return found


def measured(record: dict[str, Any]) -> Measured:
    """A record with its estimate; KeyError, TypeError or ValueError if it is malformed."""
    features = [LaunchFeatures(**launch) for launch in record["features"]]
    device = _device(record.get("device", "NVIDIA H200"))
    time_us = float(record["time_us"])
    if not time_us > 0.0:
        raise ValueError(f"time_us is {time_us}")
    estimated = total_us(breakdown(features, device))
    return Measured(record["family"], str(record.get("problem", record["family"])), time_us, estimated)


def correlate(records: Iterable[Measured]) -> list[FamilyResult]:
    """One result a family, by name."""
    groups: dict[str, dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        groups[record.family][record.problem].append(record)
    return [_family(family, list(problems.values())) for family, problems in sorted(groups.items())]


def markdown(results: list[FamilyResult]) -> str:
    """The results as a table."""
    head = "| family | candidates | problems | Spearman | goal | best by estimate / best |"
    rows = []
    for r in results:
        cells = (
            r.family,
            r.candidates,
            r.problems,
            _number(r.spearman),
            _verdict(r.spearman),
            _number(r.loss),
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join((head, "|---|---|---|---|---|---|", *rows))


def _family(family: str, groups: list[list[Measured]]) -> FamilyResult:
    weights, values, losses = [], [], []
    for group in groups:
        if len(group) < MIN_GROUP:
            continue
        found = float(spearmanr([r.estimated_us for r in group], [r.time_us for r in group]).statistic)
        if math.isfinite(found):
            weights.append(len(group))
            values.append(found)
        chosen = min(group, key=lambda record: record.estimated_us)
        losses.append(chosen.time_us / min(record.time_us for record in group))
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights) if weights else None
    return FamilyResult(
        family=family,
        candidates=sum(map(len, groups)),
        problems=len(groups),
        spearman=mean,
        loss=sum(losses) / len(losses) if losses else None,
    )


def _device(name: str) -> DeviceModel:
    for device in DEVICES:
        if device.name == name:
            return device
    raise ValueError(f"unknown device {name!r}")


def _number(value: float | None) -> str:
    return "not enough data" if value is None else f"{value:.2f}"


def _verdict(value: float | None) -> str:
    if value is None:
        return "-"
    return f">= {GOAL} met" if value >= GOAL else f">= {GOAL} missed"


def main(arguments: list[str]) -> int:
    """Read, correlate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", type=Path)
    parser.add_argument("--out", type=Path, help="also write the Markdown table here")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args(arguments)
    try:
        results = correlate(read_records(options.records))
    except WarpsmithError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    as_json = {
        r.family: {"spearman": r.spearman, "candidates": r.candidates, "loss": r.loss} for r in results
    }
    print(json.dumps(as_json) if options.json else markdown(results))
    if options.out:
        options.out.write_text(markdown(results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
