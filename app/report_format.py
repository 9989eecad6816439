"""Figures as the report words them: one number of digits, one set of units, `–` where nothing was taken."""

from __future__ import annotations

from datetime import datetime
from math import isfinite, log10

NOTHING = "–"
THIN = "\u202f"
"""A narrow space that does not break, between a number and its unit."""
_SI = ("", "k", "M", "G", "T", "P")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits and no more behind the point than they need: `4`, `0.0312`, `1,235`."""
    if value is None:
        return NOTHING
    if not isfinite(value):
        return "∞" if value > 0 else str(value)
    if value == 0:
        return "0"
    if abs(value) >= 1e9 or abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    behind = max(0, digits - 1 - int(log10(abs(value)) // 1))
    text = f"{value:,.{behind}f}"
    return text if abs(value) != round(abs(value)) else f"{value:,.0f}"


def duration(us: float | None) -> str:
    """Microseconds in the unit that suits them."""
    if us is None:
        return NOTHING
    if not isfinite(us):
        return "∞"
    for limit, scale, unit in ((1.0, 1e3, "ns"), (1e3, 1.0, "µs"), (1e6, 1e-3, "ms")):
        if us < limit:
            return f"{_fixed(us * scale)}{THIN}{unit}"
    return f"{_fixed(us * 1e-6)}{THIN}s"


def seconds(value: float | None) -> str:
    """Seconds, minutes and hours."""
    if value is None:
        return NOTHING
    if value < 120:
        return f"{_fixed(value)}{THIN}s"
    minutes = value / 60
    return f"{minutes:.0f}{THIN}min" if minutes < 120 else f"{minutes / 60:.1f}{THIN}h"


def size(count: float | None) -> str:
    """Bytes, in powers of 1024."""
    if count is None:
        return NOTHING
    step = 0
    while count >= 1024 and step < len(_BINARY) - 1:
        count, step = count / 1024, step + 1
    return f"{_fixed(count) if step else f'{count:.0f}'}{THIN}{_BINARY[step]}"


def rate(value: float | None, unit: str) -> str:
    """A rate with an SI prefix: `4.3 TB/s`."""
    if value is None:
        return NOTHING
    step = 0
    while value >= 1000 and step < len(_SI) - 1:
        value, step = value / 1000, step + 1
    return f"{_fixed(value)}{THIN}{_SI[step]}{unit}"


def percent(share: float | None) -> str:
    """A share of one."""
    if share is None:
        return NOTHING
    text = f"{100 * share:.0f}" if share >= 0.1 or share == 0 else f"{100 * share:.2g}"
    return f"{text}{THIN}%"


def ratio(value: float | None) -> str:
    """A factor: `1.94×`."""
    return NOTHING if value is None else f"{value:.2f}×" if value < 100 else f"{value:,.0f}×"


def clock(stamp: str) -> str:
    """An ISO time to the minute, in UTC."""
    try:
        return f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return stamp


def counter(value: float | None, unit: str) -> str:
    """A counter of the table in its unit."""
    if value is None:
        return NOTHING
    if unit in ("B", "B a block", "B a thread"):
        rest = unit.removeprefix("B").strip()
        return f"{size(value)}{' ' + rest if rest else ''}"
    if unit == "µs":
        return duration(value)
    return f"{number(value)}{THIN}{unit}" if unit else number(value)


def _fixed(value: float) -> str:
    """Three significant digits, none cut off before the point."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
