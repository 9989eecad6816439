"""The report's charts as inline SVG: no script, colours from the page's own style, every label escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup, escape

from warpsmith.app import report_format as words

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 40
ROW = 30
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate on a chart. `mark`: its CSS class."""

    x: float
    y: float
    label: str
    mark: str = "dot"


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        """The pixel of a value; values outside stay at the edge."""
        value = min(max(value, self.low), self.high)
        share = (
            log10(value / self.low) / log10(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the range, few enough to be read."""
        return _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)


def scale(values: Sequence[float], start: float, end: float, *, log: bool = False, from_zero: bool = False) -> Scale:
    """A scale that holds all values with a little room."""
    low, high = min(values), max(values)
    if log:
        low, high = low / 1.15, high * 1.15
    else:
        room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        low, high = (0.0 if from_zero else low - room), high + room
    return Scale(low, high, start, end, log)


def anytime(points: Sequence[Point], best: Sequence[tuple[float, float]], *, x_label: str, y_label: str) -> Markup:
    """Cost of every correct candidate and the best so far as steps. `best`: where it improved, and the last x."""
    if not points or not best:
        return Markup("")
    costs = [point.y for point in points]
    x = scale([0.0, *(point.x for point in points), best[-1][0]], LEFT, WIDTH - RIGHT)
    x = Scale(0.0, x.high, x.start, x.end, False)
    y = scale(costs, HEIGHT - BOTTOM, TOP, log=max(costs) > 4 * min(costs))
    body = _frame(x, y, x_label, y_label, _plain, words.duration)
    path = [f"M{x.at(best[0][0]):.1f},{y.at(best[0][1]):.1f}"]
    for place, cost in best[1:]:
        path.append(f"H{x.at(place):.1f}V{y.at(cost):.1f}")
    body += [_dot(x.at(p.x), y.at(p.y), p.label, p.mark, 2.6) for p in points]
    body.append(f'<path class="best" d="{"".join(path)}"/>')
    end = best[-1]
    body.append(_text(x.at(end[0]), y.at(end[1]) - 7, words.duration(end[1]), "end strong"))
    return _svg(WIDTH, HEIGHT, f"Best cost so far against {x_label}: {words.duration(end[1])} at the end", body)


def roofline(points: Sequence[Point], *, bytes_per_s: float, flops_per_s: float) -> Markup:
    """Achieved FLOP/s over FLOPs a byte of the least traffic, below what memory and arithmetic allow."""
    if not points:
        return Markup("")
    ridge = flops_per_s / bytes_per_s
    x = scale([*(p.x for p in points), ridge / 20, ridge * 4], LEFT, WIDTH - RIGHT, log=True)
    lowest = min(*(p.y for p in points), x.low * bytes_per_s)
    y = scale([lowest / 2, flops_per_s], HEIGHT - BOTTOM, TOP, log=True)
    body = _frame(x, y, "FLOP per byte of the least traffic", "FLOP/s", _plain, lambda v: words.rate(v, ""))
    corner = (x.at(ridge), y.at(flops_per_s))
    start = max(x.low, y.low / bytes_per_s)
    roof = f"M{x.at(start):.1f},{y.at(start * bytes_per_s):.1f}L{corner[0]:.1f},{corner[1]:.1f}H{x.end:.1f}"
    body.append(f'<path class="roof" d="{roof}"/>')
    body.append(_text(x.end - 2, corner[1] - 6, words.rate(flops_per_s, "FLOP/s"), "end"))
    slope = (x.at(ridge / 6), y.at(ridge / 6 * bytes_per_s))
    body.append(_text(slope[0] - 8, slope[1] - 6, words.rate(bytes_per_s, "B/s"), "end"))
    body += [_dot(x.at(p.x), y.at(p.y), p.label, p.mark, 5 if p.mark != "dot" else 2.6) for p in points]
    body += _labels([(x.at(p.x) + 9, y.at(p.y) + 4, p.label) for p in points if p.mark != "dot"])
    return _svg(WIDTH, HEIGHT, "Roofline: achieved FLOP/s under the limits of memory and arithmetic", body)


def intervals(rows: Sequence[tuple[str, float, float, float]], *, reference: float | None, unit: str) -> Markup:
    """A row for each name: a value with its interval, on one scale. `unit`: `×` or `µs`."""
    if not rows:
        return Markup("")
    show: Callable[[float], str] = words.ratio if unit == "×" else words.duration
    height = TOP + ROW * len(rows) + BOTTOM
    left, right = 118, 92
    values = [value for row in rows for value in row[1:]] + ([reference] if reference is not None else [])
    x = scale(values, left, WIDTH - right, from_zero=min(values) < 0.4 * max(values))
    body = _x_axis(x, height, "", show)
    if reference is not None:
        at = x.at(reference)
        body.append(f'<path class="reference" d="M{at:.1f},{TOP - 6}V{height - BOTTOM}"/>')
    for index, (name, value, low, high) in enumerate(rows):
        y = TOP + ROW * (index + 0.5)
        body.append(_text(left - 10, y + 4, name, "end"))
        body.append(f'<path class="interval" d="M{x.at(low):.1f},{y:.1f}H{x.at(high):.1f}"/>')
        body.append(_dot(x.at(value), y, f"{name}: {show(value)} ({show(low)} to {show(high)})", "winner", 4.5))
        body.append(_text(WIDTH - right + 10, y + 4, show(value), "strong"))
    return _svg(WIDTH, height, "Values with their intervals", body)


def strips(samples: Mapping[str, Sequence[float]]) -> Markup:
    """Raw samples as ticks on one scale of microseconds, a row for each contender."""
    rows = {name: values for name, values in samples.items() if values}
    if not rows:
        return Markup("")
    height, left = TOP + ROW * len(rows) + BOTTOM, 118
    x = scale([value for values in rows.values() for value in values], left, WIDTH - RIGHT)
    body = _x_axis(x, height, "time of one sample", words.duration)
    for index, (name, values) in enumerate(rows.items()):
        y = TOP + ROW * (index + 0.5)
        body.append(_text(left - 10, y + 4, name, "end"))
        marks = "".join(f"M{x.at(value):.1f},{y - 8:.1f}v16" for value in values)
        body.append(f'<path class="sample" d="{marks}"/>')
    return _svg(WIDTH, height, "Raw timing samples by contender", body)


def _frame(
    x: Scale, y: Scale, x_label: str, y_label: str, show_x: Callable[[float], str], show_y: Callable[[float], str]
) -> list[str]:
    body = _x_axis(x, HEIGHT, x_label, show_x)
    for tick in y.ticks():
        at = y.at(tick)
        body.append(f'<path class="grid" d="M{x.start:.1f},{at:.1f}H{x.end:.1f}"/>')
        body.append(_text(x.start - 8, at + 4, _round(show_y(tick)), "end"))
    body.append(_text(x.start - 50, TOP - 3, y_label, "axis"))
    return body


def _x_axis(x: Scale, height: float, label: str, show: Callable[[float], str]) -> list[str]:
    floor_y = height - BOTTOM
    body = [f'<path class="base" d="M{x.start:.1f},{floor_y:.1f}H{x.end:.1f}"/>']
    for tick in x.ticks():
        body.append(_text(x.at(tick), floor_y + 16, _round(show(tick)), "middle"))
    if label:
        body.append(_text((x.start + x.end) / 2, height - 6, label, "middle axis"))
    return body


def _labels(wanted: Sequence[tuple[float, float, str]]) -> list[str]:
    """Labels of neighbouring points, moved apart where they would overlap."""
    body: list[str] = []
    last = -1e9
    for x, y, text in sorted(wanted, key=lambda one: one[1]):
        last = max(y, last + 14)
        body.append(_text(x, last, text, "strong"))
    return body


def _dot(x: float, y: float, label: str, mark: str, radius: float) -> str:
    return f'<circle class="{mark}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"><title>{escape(label)}</title></circle>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(width: float, height: float, title: str, body: Sequence[str]) -> Markup:
    inside = "".join(body)
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
    # Every part was escaped where it was made.
    return Markup(f"{head}{inside}</svg>")


def _plain(value: float) -> str:
    return words.number(value)


def _round(text: str) -> str:
    """A tick's label without noughts behind the point."""
    return re.sub(r"\.(\d*?)0+(?=\D|$)", lambda found: f".{found[1]}" if found[1] else "", text)


def _ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    step = 10.0 ** floor(log10((high - low) / _MOST_TICKS))
    while (high - low) / step > _MOST_TICKS:
        step *= 2.5 if f"{step:e}".startswith("2") else 2.0
    first = ceil(low / step - 1e-9)
    return [n * step for n in range(first, floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, or powers alone, thinned out."""
    exponents = range(floor(log10(low)), ceil(log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**e for e in exponents for d in digits if low <= d * 10.0**e <= high]
        if len(found) <= _MOST_TICKS:
            break
    if len(found) < 2:
        return _ticks(low, high)
    return found[:: -(-len(found) // _MOST_TICKS)]
