"""Rank correlation of the cost model with measured times, by problem and by family.

python benchmarks/cost_correlation.py [RECORDS.jsonl[.xz]] [--out REPORT.md] [--json]

Two kinds of lines, in any order. `{"problem", "region"}`: what a problem computes, a `kernels.region.Region` or
`MatmulRegion` as JSON. `{"problem", "family", "values", "time_us"}`: one measured candidate of it; `features` (a list
of LaunchFeatures as objects) in place of `values` needs no region, and `problem` is then optional. `device` names the
GPU (default NVIDIA H200). Without a path the records in `benchmarks/data` are read.

Features and estimates are computed anew, without anything that only a compiler knows, as a search would before it
compiles. Correlations are Spearman's within a problem, since a search never compares across problems; a family's
figure is the median over its problems.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter
from scipy.stats import spearmanr

from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DEVICES, DeviceModel
from warpsmith.kernels.errors import UserError, WarpsmithError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.family import KernelSpec, LaunchFeatures

DATA = Path(__file__).parent / "data" / "h200_level1.jsonl.xz"
GOAL = 0.6
MIN_GROUP = 5
"""Candidates of one problem below which a rank correlation says nothing."""
_REGIONS: TypeAdapter[AnyRegion] = TypeAdapter(AnyRegion)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured candidate with its estimate, microseconds."""

    family: str
    problem: str
    time_us: float
    estimated_us: float


@dataclass(frozen=True, slots=True)
class Group:
    """How well estimates rank the candidates of one problem, of one family or of all."""

    problem: str
    family: str
    candidates: int
    spearman: float | None
    """None if there are too few candidates or if nothing varies."""
    loss: float
    """Time of the candidate with the lowest estimate over the best time."""
    bias: float
    """Median of estimate over time."""


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """A family over its problems."""

    family: str
    candidates: int
    problems: int
    spearman: float | None
    """Median over problems; None if no problem has enough."""
    worst: float | None
    loss: float


def read_records(path: Path) -> list[Measured]:
    """Records of a JSON-lines file, compressed or not. Raises UserError naming the line that is wrong."""
    try:
        raw = path.read_bytes()
        text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    lines: list[tuple[int, dict[str, Any]]] = []
    regions: dict[str, AnyRegion] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        with _Blame(path, number):
            record = json.loads(line)
            if "region" in record:
                regions[str(record["problem"])] = _REGIONS.validate_python(record["region"])
            else:
                lines.append((number, record))
    found = []
    for number, record in lines:
        with _Blame(path, number):
            found.append(measured(record, regions))
    return found


class _Blame:
    """Turns what a malformed line raises into a UserError that names it."""

    def __init__(self, path: Path, number: int) -> None:
        self._where = f"{path}, line {number}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (ValueError, KeyError, TypeError)):
            raise UserError(f"{self._where}: not a timing record ({error!r})") from error


def measured(record: dict[str, Any], regions: dict[str, AnyRegion]) -> Measured:
    """A record with its estimate; KeyError, TypeError or ValueError if it is malformed."""
    family = str(record["family"])
    device = _device(record.get("device", "NVIDIA H200"))
    time_us = float(record["time_us"])
    if not time_us > 0.0:
        raise ValueError(f"time_us is {time_us}")
    features: Iterable[LaunchFeatures]
    if "features" in record:
        features = [LaunchFeatures(**launch) for launch in record["features"]]
    else:
        features = _specs(regions[str(record["problem"])], device)[family].features(record["values"])
    return Measured(family, str(record.get("problem", family)), time_us, total_us(breakdown(features, device)))


@lru_cache(maxsize=256)
def _specs(region: AnyRegion, device: DeviceModel) -> dict[str, KernelSpec]:
    return {spec.family.name: spec for spec in specs_for(region, device)}


def groups(records: Iterable[Measured]) -> list[Group]:
    """One result a problem and family, and one a problem over all of its families if it has several."""
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for record in records:
        found[record.problem, record.family].append(record)
    for problem in {problem for problem, _ in found}:
        parts = [key for key in found if key[0] == problem]
        if len(parts) > 1:
            found[problem, "all"] = [record for key in parts for record in found[key]]
    return [_group(*key, members) for key, members in sorted(found.items(), key=lambda item: _natural(*item[0]))]


def correlate(found: Iterable[Group]) -> list[FamilyResult]:
    """One result a family, by name."""
    families: dict[str, list[Group]] = defaultdict(list)
    for group in found:
        families[group.family].append(group)
    return [_family(family, members) for family, members in sorted(families.items())]


def _group(problem: str, family: str, members: list[Measured]) -> Group:
    spearman = None
    if len(members) >= MIN_GROUP:
        value = float(spearmanr([m.estimated_us for m in members], [m.time_us for m in members]).statistic)
        spearman = value if math.isfinite(value) else None
    chosen = min(members, key=lambda member: member.estimated_us)
    return Group(
        problem=problem,
        family=family,
        candidates=len(members),
        spearman=spearman,
        loss=chosen.time_us / min(member.time_us for member in members),
        bias=median(member.estimated_us / member.time_us for member in members),
    )


def _family(family: str, members: list[Group]) -> FamilyResult:
    values = [group.spearman for group in members if group.spearman is not None]
    return FamilyResult(
        family=family,
        candidates=sum(group.candidates for group in members),
        problems=len(members),
        spearman=median(values) if values else None,
        worst=min(values) if values else None,
        loss=median(group.loss for group in members),
    )


def _natural(problem: str, family: str) -> tuple[str, tuple[str, int, str]]:
    """Sort key: family first, then problems with their numbers as numbers."""
    head = problem.rstrip("0123456789")
    digits = problem[len(head) :]
    return family, (head, int(digits) if digits else 0, problem)


def markdown(found: list[Group]) -> str:
    """Family table, then one row a problem."""
    families = [
        (
            r.family,
            r.candidates,
            r.problems,
            _number(r.spearman),
            _number(r.worst),
            _verdict(r.spearman),
            _number(r.loss),
        )
        for r in correlate(found)
    ]
    single = [(g.family, g.problem, g.candidates, _number(g.spearman), _number(g.loss), _number(g.bias)) for g in found]
    return "\n\n".join(
        (
            "# Rank correlation of the cost model",
            "Written by `benchmarks/cost_correlation.py`: Spearman's correlation of estimates, made from slot values "
            "before any compilation, with measured times, within each problem. `all` ranks the candidates of all "
            "families of a problem together.",
            _table(
                ("family", "candidates", "problems", "Spearman, median", "lowest", "goal", "lowest estimate / best"),
                families,
            ),
            "## By problem",
            _table(
                ("family", "problem", "candidates", "Spearman", "lowest estimate / best", "estimate / time, median"),
                single,
            ),
        )
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="?", default=DATA)
    parser.add_argument("--out", type=Path, help="also write the Markdown report here")
    parser.add_argument("--json", action="store_true", help="print the families as JSON instead of the report")
    options = parser.parse_args(arguments)
    try:
        found = groups(read_records(options.records))
    except WarpsmithError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    as_json = {result.family: asdict(result) for result in correlate(found)}
    print(json.dumps(as_json) if options.json else markdown(found))
    if options.out:
        options.out.write_text(markdown(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
