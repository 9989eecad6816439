"""Settings that were tuned against the defaults of slot policies, on seeds and tables that took no part in tuning.

usage: python benchmarks/slots_tuning.py --tables DIR --settings FILE [--settings FILE] --searches FILE.jsonl
           [--other TABLE ...] [--seed 300] [--seeds 20] [--out docs/results/slots_tuning.md]

FILE is what `python -m warpsmith.app.slots tune` wrote; its tables are searched on new seeds, and the tables named by
--other beside them. Every search is a line of FILE.jsonl; one that is there is not run again.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from warpsmith.agents.policy import Policy
from warpsmith.agents.registry import make_policy
from warpsmith.rl.replay import curve, replay
from warpsmith.rl.slots.training import TrainSettings, trainee
from warpsmith.rl.slots.tuning import TunedSettings, read_settings
from warpsmith.tools.tables.folder import read_table, table_files, table_name
from warpsmith.tools.tables.table import Table

AT = (25, 50, 100, 200)
Shares = dict[tuple[str, str, int], list[float]]


def main() -> None:
    """Runs what is missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--settings", type=Path, action="append", required=True)
    parser.add_argument("--searches", type=Path, required=True)
    parser.add_argument("--other", action="append", default=[])
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tuned = [read_settings(path) for path in options.settings]
    seeds = range(options.seed, options.seed + options.seeds)
    for one in tuned:
        if set(seeds) & set(one.made["seeds"]):
            parser.error("these seeds took part in tuning: choose others by --seed")
    names = list(dict.fromkeys([*(name for one in tuned for name in one.made["tables"]), *options.other]))
    files = {table_name(path): path for path in table_files(options.tables)}
    tables = {name: read_table(files[name]) for name in names}
    shares = _searched(tables, tuned, seeds, options.searches)
    if options.out is not None:
        options.out.write_text(page(shares, tuned, options.other, seeds))


def _searched(tables: dict[str, Table], tuned: Sequence[TunedSettings], seeds: range, path: Path) -> Shares:
    arms: dict[str, Callable[[], Policy]] = {"random": lambda: make_policy("random")}
    for one in tuned:
        for name, settings in ((one.algorithm, TrainSettings(one.algorithm)), (f"{one.algorithm}, tuned", one)):
            made = settings.onto(TrainSettings()) if isinstance(settings, TunedSettings) else settings
            arms[name] = lambda made=made: trainee(made, ())  # type: ignore[misc]
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found: Shares = {(x["arm"], x["table"], x["seed"]): x["share"] for x in lines}
    with path.open("a") as file:
        for seed in seeds:
            for name, table in tables.items():
                for arm, policy in arms.items():
                    if (arm, name, seed) not in found:
                        trials = replay(table, policy(), budget=AT[-1], seed=seed)
                        found[arm, name, seed] = curve(table, trials, AT).tolist()
                        line = {"arm": arm, "table": name, "seed": seed, "share": found[arm, name, seed]}
                        file.write(json.dumps(line) + "\n")
                        file.flush()
    return found


def page(shares: Shares, tuned: Sequence[TunedSettings], other: Sequence[str], seeds: range) -> str:
    """The page."""
    own = list(dict.fromkeys(name for one in tuned for name in one.made["tables"]))
    arms = ["random", *(arm for one in tuned for arm in (one.algorithm, f"{one.algorithm}, tuned"))]
    tuning = tuned[0].made["seeds"]
    text = [HEAD.format(first=seeds[0], last=seeds[-1], tuned=", ".join(own), low=tuning[0], high=tuning[-1])]
    for one in tuned:
        text += [*_settings(one), ""]
    for title, names in (("Tables of the tuning, other seeds", own), ("Tables that took no part", list(other))):
        if not names:
            continue
        text += [f"## {title}", "", f"Mean of {', '.join(names)}.", ""]
        text += ["| arm | " + " | ".join(map(str, AT)) + " | mean |", "|---" * (len(AT) + 2) + "|"]
        for arm in arms:
            curves = _curves(shares, arm, names, seeds)
            columns = np.concatenate([curves, curves.mean(axis=1, keepdims=True)], axis=1)
            cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(columns.mean(0), _error(columns), strict=True)]
            text.append(f"| {arm} | " + " | ".join(cells) + " |")
        text.append("")
        for one in tuned:
            text.append(_answer(shares, one.algorithm, names, seeds))
        text.append("")
    return "\n".join(text).rstrip() + "\n"


def _settings(one: TunedSettings) -> list[str]:
    """What was found, beside the defaults."""
    made, base = one.made, TrainSettings(one.algorithm)
    rows = {"credit": (base.arm, one.arm), "view": (base.view, one.view)}
    rows |= _pairs(asdict(base.learn), asdict(one.learn))
    if one.algorithm == "ppo":
        rows |= _pairs(asdict(base.critic), asdict(one.critic), "critic ")
    changed = [f"{name} {_said(old)} → {_said(new)}" for name, (old, new) in rows.items() if old != new]
    return [
        f"`{one.algorithm}`: {made['trials']} trials, {made['whole_trials']} of them not given up; on the tuning's own "
        f"seeds {made['score']:.4f}, the defaults {made['score_of_defaults']:.4f}. Changed: "
        f"{'; '.join(changed) or 'nothing'}.",
    ]


def _pairs(base: dict[str, Any], found: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    rows: dict[str, tuple[Any, Any]] = {}
    for name, old in base.items():
        if isinstance(old, dict):
            rows |= _pairs(old, found[name], prefix)
        else:
            rows[prefix + name] = (old, found[name])
    return rows


def _said(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _curves(shares: Shares, arm: str, names: Sequence[str], seeds: range) -> np.ndarray:
    """(seeds, len(AT)): mean over the tables."""
    return np.mean([[shares[arm, name, seed] for seed in seeds] for name in names], axis=0)


def _error(columns: np.ndarray) -> np.ndarray:
    return columns.std(axis=0, ddof=1) / len(columns) ** 0.5


def _answer(shares: Shares, algorithm: str, names: Sequence[str], seeds: range) -> str:
    gaps = (_curves(shares, f"{algorithm}, tuned", names, seeds) - _curves(shares, algorithm, names, seeds)).mean(
        axis=1
    )
    gap, error = float(gaps.mean()), float(_error(gaps[:, None])[0])
    told = abs(gap) > float(stats.t.ppf(0.975, len(seeds) - 1)) * error
    verdict = ("better" if gap > 0 else "worse") if told else "no difference told"
    return f"- `{algorithm}`, tuned less defaults, same seeds, mean of the curve: {gap:+.4f} ± {error:.4f}: {verdict}."


HEAD = """# Tuned settings of slot policies

Slot policies ([../policies.md](../policies.md)) that learn within one search from nothing. Their settings were searched
by Optuna (`python -m warpsmith.app.slots tune`) on {tuned}, seeds {low} to {high}; the searches below have
seeds {first} to {last}. A number is the table's optimum over the best time found after so many evaluations, mean over
seeds ± standard error. A difference is told where the 95 % interval of Student's t leaves out zero. Made by
`benchmarks/slots_tuning.py`.
"""


if __name__ == "__main__":
    main()
