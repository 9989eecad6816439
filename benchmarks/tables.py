"""Policies side by side on recorded tables: optimum over best found, by budget, with standard errors.

usage: python benchmarks/tables.py --tables DIR --searches FILE.jsonl [--policies builtin,random,...] [--seed 1000]
           [--seeds 40] [--table NAME ...] [--variants N] [--out docs/results/tables.md]

Every search is a line of FILE.jsonl (policy, table, seed, shares of the optimum at AT); one that is there is not run
again, so the command may be broken off and repeated. Searches run one after another with one thread each. The page is
made from the lines of the seeds asked for; a policy with fewer searches than asked for says how many it has.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from warpsmith.agents.registry import make_policy
from warpsmith.rl.replay import curve, replay
from warpsmith.tools.tables.folder import read_table, table_files, table_name
from warpsmith.tools.tables.table import Table

AT = (10, 25, 50, 100, 200)
FOUR = ("gemm_clblast_RTX3090", "convolution_A100", "convolution_A4000", "pnpoly_RTX3090")
POLICIES = ("builtin", "random", "tpe", "genetic", "coordinate")


def main() -> None:
    """Runs what is missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--searches", type=Path, required=True)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--table", action="append")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--variants", type=int, help="Variants of builtin that were tried before, on other seeds.")
    parser.add_argument("--out", type=Path, help="The page; without it searches are run and nothing is written.")
    options = parser.parse_args()
    names = tuple(options.table or FOUR)
    seeds = range(options.seed, options.seed + options.seeds)
    lines = _read(options.searches)
    wanted = [one for one in options.policies.split(",") if one]
    tables = {table_name(path): read_table(path) for path in table_files(options.tables) if table_name(path) in names}
    with options.searches.open("a") as file:
        for line in _missing(tables, wanted, seeds, {(x["policy"], x["table"], x["seed"]) for x in lines}):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    if options.out is not None:
        options.out.write_text(_page(lines, names, seeds, options.variants))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _missing(
    tables: dict[str, Table], policies: Sequence[str], seeds: range, known: set[tuple[str, str, int]]
) -> Iterator[dict[str, Any]]:
    """Searches that are not known yet, seed by seed, so that whatever is done is done for all tables."""
    for policy in policies:
        for seed in seeds:
            for name, table in tables.items():
                if (policy, name, seed) not in known:
                    trials = replay(table, make_policy(policy), budget=AT[-1], seed=seed)
                    shares = curve(table, trials, AT).tolist()
                    yield {"policy": policy, "table": name, "seed": seed, "share": shares}


def _curves(lines: list[dict[str, Any]], policy: str, name: str, seeds: Sequence[int]) -> np.ndarray:
    found = {x["seed"]: x["share"] for x in lines if (x["policy"], x["table"]) == (policy, name)}
    return np.array([found[seed] for seed in seeds])


def _seeds_of(lines: list[dict[str, Any]], policy: str, names: Sequence[str], seeds: range) -> list[int]:
    """The seeds for which a policy has searched every table."""
    known = {(x["table"], x["seed"]) for x in lines if x["policy"] == policy}
    return [seed for seed in seeds if all((name, seed) in known for name in names)]


def _page(lines: list[dict[str, Any]], names: Sequence[str], seeds: range, variants: int | None) -> str:
    policies = [p for p in dict.fromkeys(x["policy"] for x in lines) if _seeds_of(lines, p, names, seeds)]
    policies.sort(key=lambda p: POLICIES.index(p) if p in POLICIES else len(POLICIES))
    text = [HEAD.format(versions=_versions(), seed=seeds[0], count=len(seeds), last=seeds[-1])]
    if variants is not None:
        text.append(CHOSEN.format(variants=variants))
    text += ["## Mean of " + ", ".join(names), "", *_header("policy")]
    for policy in policies:
        mine = _seeds_of(lines, policy, names, seeds)
        curves = np.mean([_curves(lines, policy, name, mine) for name in names], axis=0)
        text.append(_row(f"{policy} ({len(mine)} seeds)", curves))
    text += ["", *_paired(lines, names, seeds, policies)]
    for name in names:
        text += ["", f"## {name}", "", *_header("policy")]
        for policy in policies:
            mine = _seeds_of(lines, policy, names, seeds)
            text.append(_row(policy, _curves(lines, policy, name, mine)))
    return "\n".join([*text, *_others(lines, names)]) + "\n"


def _others(lines: list[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Tables beyond those of the mean, on whatever seeds they were searched."""
    text: list[str] = []
    for name in dict.fromkeys(x["table"] for x in lines if x["table"] not in names):
        text += ["", f"## {name} (not looked at while variants were chosen)", "", *_header("policy")]
        for policy in dict.fromkeys(x["policy"] for x in lines if x["table"] == name):
            mine = sorted(x["seed"] for x in lines if (x["policy"], x["table"]) == (policy, name))
            text.append(_row(f"{policy} ({len(mine)} seeds)", _curves(lines, policy, name, mine)))
    return text


def _paired(lines: list[dict[str, Any]], names: Sequence[str], seeds: range, policies: Sequence[str]) -> list[str]:
    """How much better builtin is on the same seeds: mean of the differences with its standard error."""
    text = ["`builtin` minus the policy, on the seeds that both have:", "", *_header("policy")]
    for policy in policies:
        both = [s for s in _seeds_of(lines, policy, names, seeds) if s in _seeds_of(lines, "builtin", names, seeds)]
        if policy != "builtin" and both:
            gaps = [_curves(lines, "builtin", n, both) - _curves(lines, policy, n, both) for n in names]
            text.append(_row(f"{policy} ({len(both)} seeds)", np.mean(gaps, axis=0)))
    return text


def _header(first: str) -> list[str]:
    return [f"| {first} | " + " | ".join(map(str, AT)) + " |", "|---|" + "---|" * len(AT)]


def _row(label: str, curves: np.ndarray) -> str:
    errors = curves.std(axis=0, ddof=1) / len(curves) ** 0.5 if len(curves) > 1 else np.full(len(AT), np.nan)
    cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(curves.mean(axis=0), errors, strict=True)]
    return f"| {label} | " + " | ".join(cells) + " |"


def _versions() -> str:
    packages = [f"{name} {version(name)}" for name in ("numpy", "scipy", "optuna")]
    return ", ".join([f"Python {platform.python_version()}", *packages])


HEAD = """# Policies on recorded tuning tables

Optimum over the best time found after so many evaluations (1 is the optimum): mean over seeds ± standard error. Every
search begins in a fresh space, one proposal a round, failures count, what is proposed twice counts once. Tables: the
Auto-Tuning Association's benchmark hub, commit 8eeb99e (MIT). What counts as what: [../tables.md](../tables.md).

Made by `benchmarks/tables.py --tables DIR --searches FILE.jsonl --seed {seed} --seeds {count}`; seeds {seed} to {last}.
{versions}.
"""
CHOSEN = """`builtin` was chosen among {variants} variants (targets, acquisition, first evaluations, priors, repairs,
escapes), each on 5 to 30 of the seeds 0 to 29 of these tables or of the two convolutions alone. It is told nothing of a
table but parameters, values, combinations, and roles by the patterns of `tools/tables/roles.toml`. The seeds above took
no part in choosing; the four tables did, so the last sections show others.
"""

if __name__ == "__main__":
    main()
