"""The page of benchmarks/agents_study.py: tables of its lines, and answers that follow from them by rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from made import told
from scipy import stats

from warpsmith.tools.tables.table import Table

GAIN = 0.01
"""A change wins where it is faster by more than this."""
PAIRS_SHOWN = 6
TEAM, SINGLE = "team, shared credit", "single agent"
HEAD = """# Role agents against one agent, on recorded tables

Slot policies ([../policies.md](../policies.md)) that learn within one search from nothing: {budget} evaluations in a
fresh space, one proposal a round, seeds {first} to {last}. A number is the table's optimum over the best time found;
± is the standard error over the seeds.
Made by
`python benchmarks/agents_study.py --tables DIR --searches FILE.jsonl --seed {first} --seeds {count}{more} --out FILE`;
every sentence below that answers something is chosen by the rule that stands with it. So few seeds tell large
differences only. The policies' settings were chosen on seeds 0 to 2 of these tables; these seeds took no part in it.
"""


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of searches; none where it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def text(
    lines: list[dict[str, Any]], tables: dict[str, Table], seeds: range, at: Sequence[int],
    warm: tuple[str, str] | None,
    note: str | None = None,
) -> str:  # fmt: skip
    """The page."""
    own = [x for x in lines if x["seed"] in seeds and x["at"] == list(at)]
    arms = list(dict.fromkeys(x["arm"] for x in own if x["table"] in tables))
    arms = [arm for arm in arms if arm not in ("cold", "warm", "transfer", "onto random")]
    names = list(tables)
    more = f" --from {warm[0]} --onto {warm[1]}" if warm else ""
    found = [HEAD.format(budget=at[-1], first=seeds[0], last=seeds[-1], count=len(seeds), more=more)]
    shown = [x for x in own if x["table"] in ({*tables, warm[1]} if warm else tables)]
    found += [told([x.get("made") for x in shown], "searches"), *(["", note] if note else []), ""]
    found += ["## Learning curves", "", f"Mean of {', '.join(names)}.", "", *_header("arm", at)]
    found += [_row(arm, np.mean([_curves(own, arm, n, seeds) for n in names], axis=0)) for arm in arms]
    for name in names:
        found += ["", f"### {name}", "", *_header("arm", at)]
        found += [_row(arm, _curves(own, arm, name, seeds)) for arm in arms]
    found += ["", *_answers(own, names, seeds, at, arms), *_entropy(own, names, seeds, at)]
    found += [*_noise(own, names, seeds, at)]
    for name, table in tables.items():
        found += [*_interactions(name, table)]
    if warm is not None:
        found += [*_warm(own, *warm, seeds, at)]
    return "\n".join(found) + "\n"


def _curves(lines: list[dict[str, Any]], arm: str, table: str, seeds: Sequence[int]) -> np.ndarray:
    known = {x["seed"]: x["share"] for x in lines if (x["arm"], x["table"]) == (arm, table)}
    return np.array([known[seed] for seed in seeds])


def _header(first: str, at: Sequence[int]) -> list[str]:
    return [f"| {first} | " + " | ".join(map(str, at)) + " |", "|---|" + "---|" * len(at)]


def _row(label: str, curves: np.ndarray) -> str:
    cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(curves.mean(axis=0), _error(curves), strict=True)]
    return f"| {label} | " + " | ".join(cells) + " |"


def _error(curves: np.ndarray) -> np.ndarray:
    return curves.std(axis=0, ddof=1) / len(curves) ** 0.5 if len(curves) > 1 else np.full(curves.shape[1:], np.nan)


def _gap(
    lines: list[dict[str, Any]], one: str, other: str, names: Sequence[str], seeds: range, *, last: bool = False
) -> tuple[float, float]:
    """Difference of the means of two curves, or of their ends, on the same seeds, with its standard error."""
    gaps = np.mean([_curves(lines, one, n, seeds) - _curves(lines, other, n, seeds) for n in names], axis=0)
    mine = gaps[:, -1] if last else gaps.mean(axis=1)
    return float(mine.mean()), float(_error(mine[:, None])[0])


def _verdict(gap: float, error: float, seeds: range) -> str:
    """Told by the 95 % interval of Student's t: with five seeds that is 2.8 standard errors, not two."""
    if len(seeds) < 2 or not abs(gap) > float(stats.t.ppf(0.975, len(seeds) - 1)) * error:
        return "no difference told"
    return "better" if gap > 0 else "worse"


def _answers(
    lines: list[dict[str, Any]], names: Sequence[str], seeds: range, at: Sequence[int], arms: Sequence[str]
) -> list[str]:
    pairs = [
        (TEAM, "random"), (SINGLE, "random"), (TEAM, SINGLE), ("team, PPO", "single agent, PPO"),
        ("team, counterfactual credit", TEAM), ("team that sees each other", TEAM), ("team, PPO", TEAM),
    ]  # fmt: skip
    found = [
        "## Answers",
        "",
        "Difference of the curves' means over the columns above, and at the last of them, on the same seeds. It",
        "counts where the 95 % interval (Student's t) leaves out zero; of so many comparisons one may count by chance.",
    ]
    found += ["", "| the arm | against | over the curve | at the end |", "|---|---|---|---|"]
    for one, other in pairs:
        if one in arms and other in arms:
            cells = []
            for last in (False, True):
                gap, error = _gap(lines, one, other, names, seeds, last=last)
                cells.append(f"{gap:+.3f} ± {error:.3f}, {_verdict(gap, error, seeds)}")
            found.append(f"| {one} | {other} | {' | '.join(cells)} |")
    return [*found, ""]


def _entropy(lines: list[dict[str, Any]], names: Sequence[str], seeds: range, at: Sequence[int]) -> list[str]:
    """Role -> share of the uniform entropy over the search."""
    found = ["## Entropy by role: does each dimension settle by itself?", ""]
    found += [
        "Entropy of a role's decisions over the uniform one's, mean over seeds; settled: below 0.5 at the end.",
        "",
    ]
    found += [*_header("table, arm, role", at)]
    settled, roles = 0, 0
    for name in names:
        for arm in (TEAM, SINGLE):
            own = [x["entropy"] for x in lines if (x["arm"], x["table"]) == (arm, name)]
            for role in own[0][0]:
                curve = np.mean([[point[role] for point in one] for one in own], axis=0)
                found.append(f"| {name}, {arm}, {role} | " + " | ".join(f"{e:.2f}" for e in curve) + " |")
                roles, settled = roles + (arm == TEAM), settled + (arm == TEAM and curve[-1] < 0.5)
    return [
        *found,
        "",
        f"Of the team's {roles} roles on these tables {settled} had settled after {at[-1]} evaluations.",
        "",
    ]


def _noise(lines: list[dict[str, Any]], names: Sequence[str], seeds: range, at: Sequence[int]) -> list[str]:
    found = [
        "## Noise at plateaus",
        "",
        "| noise | optimum / best at the end | evaluations of escape rounds | that became the best |",
    ]
    found += ["|---|---|---|---|"]
    labels = {TEAM: "targeted (one role)", "team, uniform noise": "uniform (all roles)", "team, no noise": "none"}
    for arm, label in labels.items():
        last = np.mean([_curves(lines, arm, n, seeds) for n in names], axis=0)[:, -1:]
        own = [x["escapes"] for x in lines if x["arm"] == arm and x["table"] in names]
        told, better = sum(x["evaluations"] for x in own), sum(x["improved"] for x in own)
        share = f" ({better / told:.1%})" if told else ""
        found.append(f"| {label} | {last.mean():.3f} ± {_error(last)[0]:.3f} | {told} | {better}{share} |")
    gap, error = _gap(lines, TEAM, "team, uniform noise", names, seeds)
    none, none_error = _gap(lines, TEAM, "team, no noise", names, seeds)
    return [
        *found, "", f"Targeted against uniform noise, curves: {gap:+.3f} ± {error:.3f}, {_verdict(gap, error, seeds)}. "
        f"Targeted against none: {none:+.3f} ± {none_error:.3f}, {_verdict(none, none_error, seeds)}.", "",
    ]  # fmt: skip


def _interactions(name: str, table: Table) -> list[str]:
    """Which pairs of slots lead on where no single change does, from the whole table."""
    costs = {p: e.cost_us for p, e in zip(_keys(table), table.entries.values(), strict=True) if e.cost_us is not None}
    slots = range(len(table.slots))
    stuck = [
        point
        for point, cost in costs.items()
        if not any(_best(costs, table, point, (i,)) < cost * (1 - GAIN) for i in slots)
    ]
    away = [point for point in stuck if table.optimum_us < costs[point] * (1 - GAIN)]
    found = [f"## Pairs of slots: {name}", ""]
    found += [
        f"{len(stuck)} of {len(costs)} configurations that run cannot be made faster by more than {GAIN:.0%} "
        f"by a change of one slot; {len(away)} of them are not within that of the optimum."
    ]
    rows = []
    for pair in combinations(slots, 2):
        gains = [costs[point] / _best(costs, table, point, pair) for point in away]
        freed = [gain for gain in gains if gain > 1 / (1 - GAIN)]
        if freed:
            names = " × ".join(table.slots[i].name for i in pair)
            across = len({table.slots[i].owner for i in pair}) > 1
            rows.append((len(freed) / len(away), names, "two roles" if across else "one role", max(freed)))
    free = sum(
        any(costs[p] / _best(costs, table, p, pair) > 1 / (1 - GAIN) for pair in combinations(slots, 2)) for p in away
    )
    if away:
        found += [
            f"A change of two slots frees {free} of the {len(away)}.",
            "",
            "| pair | owned by | frees | largest gain |",
            "|---|---|---|---|",
        ]
        rows.sort(reverse=True)
        found += [f"| {names} | {who} | {share:.0%} | {gain:.2f}x |" for share, names, who, gain in rows[:PAIRS_SHOWN]]
    return [*found, ""]


def _keys(table: Table) -> list[tuple[int, ...]]:
    places = [{value: i for i, value in enumerate(slot.values)} for slot in table.slots]
    return [tuple(place[value] for place, value in zip(places, key, strict=True)) for key in table.entries]


def _best(costs: dict[tuple[int, ...], float], table: Table, point: tuple[int, ...], slots: tuple[int, ...]) -> float:
    """The lowest cost where only these slots change."""
    around = [point]
    for i in slots:
        around = [(*p[:i], v, *p[i + 1 :]) for p in around for v in range(len(table.slots[i].values))]
    return min(costs[p] for p in around if p in costs)


def _warm(lines: list[dict[str, Any]], source: str, onto: str, seeds: range, at: Sequence[int]) -> list[str]:
    found = [f"## Warm start: trained on {source}, searched {onto}", ""]
    found += [
        f"`warm` begins from a specialist of four searches of 200 evaluations on "
        f"{source}; `transfer` proposes {source}'s best in their order.",
        "",
    ]
    found += [
        "| arm | evaluations to 95 % of the optimum, median | reached | " + " | ".join(map(str, at)) + " |",
        "|---|---|---|" + "---|" * len(at),
    ]
    for arm, label in {"cold": "cold", "warm": "warm", "transfer": "transfer", "onto random": "random"}.items():
        near = [x["near"] for x in lines if (x["arm"], x["table"]) == (arm, onto)]
        middle = float(np.median([np.inf if n is None else n for n in near]))
        shown = f"{middle:.0f}" if np.isfinite(middle) else f"over {at[-1]}"
        curves = _curves(lines, arm, onto, seeds)
        found.append(
            f"| {label} | {shown} | {sum(n is not None for n in near)} of {len(near)} |" + _row("", curves)[4:]
        )
    return [*found, ""]
