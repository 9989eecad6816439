"""The page of the study, and its curves."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from learn_figures import Grid, grids, interval
from learn_setup import Lines, Study

Grids = Mapping[str, Mapping[str, Grid]]
SPENT = "spent.json"
"""Of a training: updates and seconds."""
WINDOW = 10
"""Updates whose mean is a point of a curve."""
_SPLITS = {
    "unseen": "problems that training never saw", "near": "of them, near: another operator of a family trained on",
    "far": "of them, far: of families that training never saw", "trained": "problems trained on",
}  # fmt: skip
_CURVES = {
    "percentile/mean": "trained on", "entropy": "entropy", "unique": "different", "eval/percentile": "unseen",
    "eval/best_of_8": "unseen, best of 8",
}  # fmt: skip


def write_page(lines: Lines, folder: Path, study: Study, out: Path | None) -> None:
    """`learn.md` and `learn_curves.csv` in the study's folder, and the page where it is wanted."""
    curves = curves_of(folder)
    with (folder / "learn_curves.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "update", *_CURVES])
        writer.writerows([seed, update, *(row.get(name, "") for name in _CURVES)] for seed, update, row in curves)
    text = page(lines, study, curves, spent_of(folder))
    (folder / "learn.md").write_text(text)
    if out is not None:
        out.write_text(text)
        out.with_name(f"{out.stem}_curves.csv").write_text((folder / "learn_curves.csv").read_text())


def curves_of(folder: Path) -> list[tuple[int, int, dict[str, float]]]:
    """Seed, update and figures, of every update of every training."""
    found = []
    for path in sorted(folder.glob("seed-*/metrics.jsonl")):
        seed = int(path.parent.name.removeprefix("seed-"))
        found += [(seed, line["step"], line) for line in map(json.loads, path.read_text().splitlines())]
    return found


def spent_of(folder: Path) -> dict[int, dict[str, Any]]:
    """Seed -> updates and seconds."""
    paths = sorted(folder.glob(f"seed-*/{SPENT}"))
    return {int(path.parent.name.removeprefix("seed-")): json.loads(path.read_text()) for path in paths}


def page(
    lines: Lines, study: Study, curves: Sequence[tuple[int, int, dict[str, float]]], spent: Mapping[int, Any]
) -> str:
    """All sections that there are lines for."""
    known = {line["problem"] for line in lines.of("space")}
    splits = {name: [one for one in getattr(study, name) if one in known] for name in _SPLITS}
    text = [
        HEAD.format(count=study.evaluations, replies=study.replies, random=study.random),
        *_made(lines, study, spent),
    ]
    for name, problems in splits.items():
        found = grids(lines, problems, study.evaluations)
        text += ["", f"## {len(problems)} {_SPLITS[name]}", "", *_arms(found, len(problems), study.evaluations)]
        text.append(_first_choice(lines, problems))
        if name == "unseen":
            text += ["", *_answers(found, len(problems))]
    text += ["", *_each(lines, study, [*splits["unseen"], *splits["trained"]])]
    text += ["", *_curve_table(curves), "", *_live(lines), "", *_spaces(lines)]
    return "\n".join(text) + "\n"


def _made(lines: Lines, study: Study, spent: Mapping[int, Any]) -> list[str]:
    calls = [line for part in ("train", "answers") for line in lines.of("call", part=part)] or lines.of("call")
    if not calls:
        return []
    last = calls[-1]["machine"]
    versions = ", ".join(f"{name} {one}" for name, one in last["versions"].items())
    updates = "; ".join(f"seed {s}: {one['step']} updates in {one['seconds']:.0f} s" for s, one in spent.items())
    sampling = study.train.sampling
    return [
        f"{study.train.model.path.name}, {last['gpu'] or 'CPU'}, Python {last['python']}, {versions}. {updates}.",
        f"An update: {sampling.tasks} problems with {sampling.group_size} replies each, {study.train.loss.name}, "
        f"learning rate {study.train.learning_rate:g}, adapters of rank "
        f"{study.train.model.lora.rank if study.train.model.lora else 0}, {study.train.model.dtype}.",
    ]  # fmt: skip


def _arms(found: Grids, problems: int, count: int) -> list[str]:
    head = f"| arm | seeds | mean percentile | best of {count} | optimum / best | best of {count}, repeats count |"
    rows = [head, "|---" * 6 + "|"]
    for arm, own in found.items():
        cells = [_with_interval(own[name], problems) for name in ("percentile", "best", "share", "repeats")]
        rows.append(f"| {arm} | {own['percentile'].values.shape[1]} | " + " | ".join(cells) + " |")
    return rows


def _first_choice(lines: Lines, problems: Sequence[str]) -> str:
    """The row of the combination that a search begins with: one evaluation."""
    own = {line["problem"]: line for line in lines.of("space") if line["problem"] in problems}
    if not own:
        return ""
    rank, share = (
        statistics.fmean(one[name] for one in own.values()) for name in ("default_percentile", "default_share")
    )
    return f"| family's first choice, 1 evaluation | – | {rank:.3f} | {rank:.3f} | {share:.3f} | {rank:.3f} |"


def _with_interval(grid: Grid, problems: int) -> str:
    low, high = interval(lambda mean: mean(grid), problems)
    return f"{grid.mean():.3f} [{low:.3f}, {high:.3f}]"


def _answers(found: Grids, problems: int) -> list[str]:
    """What was asked, in figures."""
    if not {"base", "trained"} <= found.keys():
        return []
    base, own = found["base"], found["trained"]
    ratio = own["percentile"].mean() / base["percentile"].mean()
    low, high = interval(lambda mean: mean(own["percentile"]) / max(mean(base["percentile"]), 1e-9), problems)
    text = [f"Mean percentile, trained over base: {ratio:.2f} [{low:.2f}, {high:.2f}] (goal 1.5)."]
    for arm in [one for one in found if one not in ("trained",)]:
        for name in ("best", "share"):
            other = found[arm][name]
            low, high = interval(lambda mean: mean(own[name]) - mean(other), problems)  # noqa: B023
            gap = own[name].mean() - other.mean()
            what = {"best": "percentile of the best of 8", "share": "optimum over it"}[name]
            text.append(f"- trained less {arm}, {what}: {gap:+.3f} [{low:+.3f}, {high:+.3f}]")
    return [text[0], "", *text[1:]]


def _each(lines: Lines, study: Study, problems: Sequence[str]) -> list[str]:
    rows = ["## Problem by problem", "", "Mean percentile / percentile of the best of 8, means over seeds.", ""]
    arms = ("base", "trained", "random", "tpe", "builtin", "cost model")
    rows += ["| problem | split | " + " | ".join(arms) + " |", "|---" * (2 + len(arms)) + "|"]
    for problem in problems:
        found = grids(lines, [problem], study.evaluations)
        cells = [
            f"{found[arm]['percentile'].mean():.2f} / {found[arm]['best'].mean():.2f}" if arm in found else "–"
            for arm in arms
        ]
        rows.append(f"| {problem} | {study.split(problem)} | " + " | ".join(cells) + " |")
    return rows


def _curve_table(curves: Sequence[tuple[int, int, dict[str, float]]]) -> list[str]:
    """Means over seeds of windows of updates."""
    rows = [
        "## Curves", "",
        f"Means of {WINDOW} updates and of all seeds (smallest to largest seed in brackets); *unseen* is looked at now "
        "and then and chose nothing. *Trained on*: replies of the batches, with exploration. *Entropy*: nats a "
        "decision.", "",
        "| updates | " + " | ".join(_CURVES.values()) + " |", "|---" * (1 + len(_CURVES)) + "|",
    ]  # fmt: skip
    last = max((update for _, update, _ in curves), default=0)
    seeds = sorted({seed for seed, _, _ in curves})
    for start in range(0, last + WINDOW, WINDOW):
        # The look before the first update has no batch, so that it makes a window of its own.
        inside = [x for x in curves if (x[1] + WINDOW - 1) // WINDOW == start // WINDOW]
        cells = []
        for name in _CURVES:
            each = [[row[name] for one, _, row in inside if one == seed and name in row] for seed in seeds]
            means = [statistics.fmean(one) for one in each if one]
            cells.append(f"{statistics.fmean(means):.3f} ({min(means):.3f}–{max(means):.3f})" if means else "")
        if any(cells):
            rows.append(f"| {f'{start - WINDOW + 1}–{start}' if start else 0} | " + " | ".join(cells) + " |")
    return rows


def _live(lines: Lines) -> list[str]:
    found = lines.of("live")
    if not found:
        return []
    rows = [LIVE, "| problem | split | right of the replies | best reply, us | recorded best, us | default, us | "
            "recorded best / reply | default / reply | over eager |", "|---" * 9 + "|"]  # fmt: skip
    for line in found:
        right = sum(one["status"] in ("ok", "screened") for one in line["screened"])
        one = {name: line[name]["us"] for name in ("reply", "recorded", "default")}
        own, status = one["reply"], line["reply"]["status"]
        ratios = [f"{one[name] / own:.3f}" if own and one[name] else "–" for name in ("recorded", "default")]
        eager = line["reply"]["speedup"]
        over = f"{eager['value']:.2f} [{eager['low']:.2f}, {eager['high']:.2f}]" if eager else "–"
        shown = [f"{us:.1f}" if us else "–" for us in one.values()]
        rows.append(
            f"| {line['problem']} | {line['split']} | {right} of {len(line['screened'])} | {shown[0]} ({status}) | "
            f"{shown[1]} | {shown[2]} | {ratios[0]} | {ratios[1]} | {over} |"
        )
    return rows


def _spaces(lines: Lines) -> list[str]:
    rows = ["## The spaces", "", "*Median*: over the optimum. *Within 3 %*: verified ones within 3 % of the fastest. "
            "*Default*: the family's first choice: its percentile, and the optimum over it.", "",
            "| problem | family | split | combinations | verified | optimum, us | median | within 3 % | default |",
            "|---" * 9 + "|"]  # fmt: skip
    for line in {one["problem"]: one for one in lines.of("space")}.values():
        rows.append(
            f"| {line['problem']} | {line['family']} | {line['split']} | {line['combinations']} | {line['verified']} | "
            f"{line['optimum_us']:.1f} | {line['median_us'] / line['optimum_us']:.2f} | "
            f"{line['near'] / line['verified']:.0%} | {line['default_percentile']:.2f}, {line['default_share']:.3f} |"
        )
    return rows


HEAD = """# A language model that learns slots on an H200, and what carries over to problems it never saw

Made by `benchmarks/learn_study.py`, which says how, with `benchmarks/learn_study.toml`, which has the split. Recorded
spaces (`benchmarks/record_space.py`) answer: a reply names one of the recorded combinations, token by token whatever
still leads to one. The prompt tells problem, device and slots, the naive value of each as the present one, what a
search would begin with and what the cost model expects of each value; nothing that was measured.

*Mean percentile*: share of {random} fixed verified recorded combinations that a reply beats (failed: 0), mean of
{replies} replies without exploration; of a search, mean of its evaluations. *Best of {count}*: the percentile of the
best of {count} evaluations; *optimum / best*: the fastest recorded time over its time. A reply that repeats an earlier
one costs no evaluation, as in any search; the last column counts it as one. `builtin` and *cost model* know the cost
model, `random` and `tpe` do not. Brackets: 95 % bootstrap intervals over problems and seeds.
"""
LIVE = """## Judged anew

The first eight different replies of a trained seed to each unseen problem, checked quickly on the device; the fastest
of them, the recorded best and the family's own first choice then got full verdicts in one session.
"""
