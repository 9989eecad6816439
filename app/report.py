"""`warpsmith report`: what a run tried and found, as one self-contained page or as a JSON document."""

from __future__ import annotations

import base64
import functools
import hashlib
import json as jsonlib
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from warpsmith import __version__
from warpsmith.app import report_charts as charts
from warpsmith.app import report_format as words
from warpsmith.app.ending import interrupt_says, stdout_closed
from warpsmith.app.report_facts import Facts, gather
from warpsmith.kernels.errors import UserError
from warpsmith.tools.runs.store import RunStore, room_needed, write_atomically

NAME = "report.html"
_TEMPLATES = Path(__file__).parent / "templates"


def run_report(run: Path, to: Path | None, *, json: bool) -> int:
    """Writes the report of a run and says where; with `json` prints the same facts instead. Exit code 0."""
    with interrupt_says("the run is as it was, and so is an older page; run the command again"):
        with RunStore.open(run, writable=False, skip_broken=True) as store:
            facts = gather(store)
        if json:
            print(jsonlib.dumps(_plain(facts), indent=2, allow_nan=False))
        else:
            page_path = write_page(facts, to or run / NAME)
            if not stdout_closed():
                print(page_path)
    return 0


def _plain(value: Any) -> Any:
    """The same for JSON, which has no infinity: such a figure is null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def write_report(store: RunStore) -> Path:
    """Writes report.html into an open run's folder."""
    return write_page(gather(store), store.folder / NAME)


def write_page(facts: Facts, path: Path) -> Path:
    """Writes the page. UserError where the place cannot be written."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file with --to, e.g. {path / NAME}")
    with room_needed(path, option="--to FILE"):
        write_atomically(path, page(facts).encode())
    return path


def page(facts: Facts) -> str:
    """The whole page: text, style, script and charts in one file that loads nothing."""
    environment = _environment()
    style, script = (Markup((_TEMPLATES / name).read_text()) for name in ("report.css", "report.js"))
    return environment.get_template("report.html.jinja").render(
        facts, facts=facts, charts=draw(facts), style=style, script=script, policy=_policy(script), version=__version__
    )


def draw(facts: Facts) -> dict[str, Markup]:
    """The charts by name; one with nothing to show is empty."""
    return {
        "evaluations": _anytime(facts, "index", "candidates evaluated"),
        "seconds": _anytime(facts, "seconds", "seconds of search"),
        "roofline": _roofline(facts),
        "speedups": _speedups(facts),
        "times": _times(facts),
        "samples": charts.strips((facts["winner"] or {}).get("samples") or {}),
    }


def _anytime(facts: Facts, axis: str, label: str) -> Markup:
    rows = [row for row in facts["history"] if row[axis] is not None]
    points = [
        charts.Point(row[axis], row["cost_us"], f"{row['candidate']}: {words.duration(row['cost_us'])}")
        for row in rows
        if row["cost_us"] is not None
    ]
    best: list[tuple[float, float]] = []
    for point in points:
        if not best or point.y < best[-1][1]:
            best.append((point.x, point.y))
    if best:
        best.append((rows[-1][axis], best[-1][1]))
    return charts.anytime(points, best, x_label=label, y_label="cost")


def _roofline(facts: Facts) -> Markup:
    roof = (facts["winner"] or {}).get("roofline")
    if not roof or not roof["intensity"]:
        return Markup("")

    def at(cost_us: float, label: str, mark: str = "dot") -> charts.Point:
        return charts.Point(roof["intensity"], roof["flops"] / cost_us * 1e6, label, mark)

    points = [at(cost, words.duration(cost)) for cost in roof["costs_us"]]
    points += [at(cost, name, "baseline") for name, cost in roof["baselines_us"].items()]
    points += [at(one["cost_us"], one["name"], "baseline") for one in facts["winner"]["against"] if one["ratio"] > 1.02]
    points.append(at(facts["winner"]["cost_us"], "winner", "winner"))
    return charts.roofline(points, bytes_per_s=roof["bytes_per_s"], flops_per_s=roof["flops_per_s"])


def _speedups(facts: Facts) -> Markup:
    rows = [
        (name, ratio["value"], ratio["low"], ratio["high"])
        for name, ratio in ((facts["winner"] or {}).get("outcome", {}).get("speedup") or {}).items()
    ]
    return charts.intervals(rows, reference=1.0, unit="×")


def _times(facts: Facts) -> Markup:
    rows = [
        (one["candidate"][:8], one["time_us"]["p50"], one["time_us"]["p10"], one["time_us"]["p90"])
        for one in facts["verdicts"]
        if one["time_us"]
    ]
    return charts.intervals(rows, reference=None, unit="µs")


def _policy(script: str) -> str:
    """What the page may load: nothing, but for its own style and this very script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"


def _starts(lines: Iterable[Mapping[str, Any]]) -> dict[str | None, int]:
    """Slot -> the first line of its text."""
    found: dict[str | None, int] = {None: 0}
    for line in lines:
        found.setdefault(line["slot"], line["line"])
    return found


@functools.cache
def _environment() -> jinja2.Environment:
    """Everything a run recorded is untrusted text: it is escaped wherever it is shown."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    filters: Mapping[str, Any] = {
        "number": words.number, "duration": words.duration, "seconds": words.seconds, "size": words.size,
        "rate": words.rate, "percent": words.percent, "factor": words.ratio, "clock": words.clock,
        "counter": words.counter, "starts": _starts,
    }  # fmt: skip
    environment.filters.update(filters)
    return environment
