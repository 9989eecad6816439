"""One training document in several arms, some seeds each: what a setting does to what is trained on and what is not.

usage: python benchmarks/train_arms.py CONFIG.toml --model PATH --to FOLDER [--set KEY=VALUE ...]
           --arm 'NAME' --arm 'NAME: KEY=VALUE KEY=VALUE' ... [--seed 0] [--seeds 2] [--out PAGE.md]

KEY is a setting of docs/training.md (`loss.kl`), VALUE as TOML writes it; `--set` is of all arms. Every training has a
folder of its own below FOLDER; one that is there is not run again or goes on, so the command may be broken off and
repeated. The page is made from their metrics, and says what they were made with as far as that was kept there.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from made import command, note, noted, told

from warpsmith.app.display import QuietDisplay
from warpsmith.app.training.command import TrainCommand, run_train
from warpsmith.app.training.config import CONFIG, config_of, read_config
from warpsmith.rl.train.policy import VERSION_FILE

LAST = 5
"""Updates at the end whose mean stands for it."""
_FLAT = "groups_all_equal"
Lines = list[dict[str, float]]


def main() -> None:
    """Trains what is missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--arm", action="append", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only-done", action="store_true", help="Trains nothing: the page of what is there.")
    parser.add_argument("--note", help="A remark for the page's head.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    base = read_config(options.config, model=options.model).document
    arms = {name.strip(): words.split() for name, _, words in (arm.partition(":") for arm in options.arm)}
    found: dict[str, dict[int, Lines]] = {name: {} for name in arms}
    for seed in range(options.seed, options.seed + options.seeds):
        for name, words in arms.items():
            document = changed(base, [*options.set, *words, f"seed={seed}"])
            folder = _folder(options.to, name, seed)
            lines = _lines(folder) if options.only_done else _trained(folder, document)
            if lines and lines[-1]["step"] == config_of(document, name).train.steps:
                found[name][seed] = lines
    if options.out is not None:
        said = [f"`{one}`" for one in options.set]
        head = [f"`{_command(options)}`", "", told(_records(found, options.to), "trainings")]
        head += [_adapters(found, options.to), ""]
        head += [options.note, ""] if options.note else []
        text = page(found, arms, options.config.name, options.model.name, said, head)
        options.out.write_text(text)


def _folder(to: Path, name: str, seed: int) -> Path:
    return to / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)}-{seed}"


def _place(path: Path) -> str:
    """Within the repository, else the name alone."""
    root = Path(__file__).resolve().parents[1]
    return str(path.resolve().relative_to(root)) if path.resolve().is_relative_to(root) else path.name


def _adapters(found: dict[str, dict[int, Lines]], to: Path) -> str:
    """What the adapters say of themselves; nothing where all weights were trained."""
    said = set()
    for folder in (_folder(to, name, seed) for name, runs in found.items() for seed in runs):
        for config in sorted(folder.glob("policy/v*/adapter_config.json"))[-1:]:
            weights = json.loads(config.with_name(VERSION_FILE).read_text())["model"].rpartition(":")[2]
            said.add(f"peft {json.loads(config.read_text()).get('peft_version')}, of weights {weights}")
    return f"Adapters by {'; '.join(sorted(said))}." if said else ""


def _records(found: dict[str, dict[int, Lines]], to: Path) -> list[Any]:
    """With what each training was made; of one that went on with something else, all of that."""
    folders = [_folder(to, name, seed) for name, runs in found.items() for seed in runs]
    return [one for folder in folders for one in {json.dumps(one): one for one in noted(folder)}.values()]


def _command(options: argparse.Namespace) -> str:
    """What makes the page, without places of a machine."""
    words = [
        "python",
        "benchmarks/train_arms.py",
        _place(options.config),
        "--model",
        options.model.name,
        "--to",
        "FOLDER",
    ]
    words += [word for one in options.set for word in ("--set", one)]
    words += [word for one in options.arm for word in ("--arm", one)]
    return command(*words, "--seed", str(options.seed), "--seeds", str(options.seeds), "--out", "FILE")


def changed(document: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A document with these settings in place of its own."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    for one in settings:
        key, _, value = one.partition("=")
        *tables, name = key.split(".")
        place = found
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = tomllib.loads(f"value = {value}")["value"]
    return found


def _trained(folder: Path, document: dict[str, Any]) -> Lines:
    """The metrics of a training, which is run or gone on with where updates are missing."""
    lines = _lines(folder)
    if not lines or lines[-1]["step"] < config_of(document, "the arm").train.steps:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(document))
        note(folder)
        run_train(TrainCommand(config=None, resume=folder), QuietDisplay())
    return _lines(folder)


def _lines(folder: Path) -> Lines:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def page(
    found: dict[str, dict[int, Lines]],
    arms: dict[str, list[str]],
    config: str,
    model: str,
    common: Sequence[str],
    made: Sequence[str] = (),
) -> str:
    """Figures of every arm: means over its seeds, with the standard error where there are several."""
    seeds = sorted({seed for runs in found.values() for seed in runs})
    names = ("before", "after")
    head = ["arm", "trained on, first", "trained on, last", *(f"held out, {one}" for one in names)]
    head += [*(f"best of 8, {one}" for one in names), "entropy, last", "flat groups", "refilled"]
    text = [
        HEAD.format(config=config, model=model, seeds=", ".join(map(str, seeds)), last=LAST,
                    common="; of all arms: " + ", ".join(common) if common else ""),
        *made,
        "| " + " | ".join(head) + " |", "|---" * len(head) + "|",
    ]  # fmt: skip
    for name, runs in ((name, runs) for name, runs in found.items() if runs):
        words = " ".join(f"`{word}`" for word in arms[name])
        rows = [_figures(lines) for lines in runs.values()]
        seen = f" ({len(rows)} of {len(seeds)} seeds)" if len(rows) < len(seeds) else ""
        cells = [_cell([row[column] for row in rows]) for column in range(len(rows[0]))]
        text.append(f"| {name}{': ' + words if words else ''}{seen} | " + " | ".join(cells) + " |")
    return "\n".join([*text, "", *_answers(found)]) + "\n"


def _figures(lines: Lines) -> list[float]:
    updates = [line for line in lines if "percentile/mean" in line]
    looks = [line for line in lines if "eval/percentile" in line]
    first, last = updates[:LAST], updates[-LAST:]
    found = [_mean(first, "percentile/mean"), _mean(last, "percentile/mean")]
    for name in ("eval/percentile", "eval/best_of_8"):
        found += [looks[0].get(name, math.nan), looks[-1].get(name, math.nan)] if looks else [math.nan] * 2
    return [*found, *(_mean(*one) for one in ((last, "entropy"), (updates, _FLAT), (updates, "groups_refilled")))]


def _answers(found: dict[str, dict[int, Lines]]) -> list[str]:
    """Each arm against the first one on the same seeds: held-out percentile and best of 8 after training."""
    first, *others = found
    lines = [f"Less *{first}*, same seeds, after training:", "", "| arm | held out | best of 8 |", "|---|---|---|"]
    for name in others:
        seeds = [seed for seed in found[name] if seed in found[first]]
        pairs = [(_figures(found[name][seed]), _figures(found[first][seed])) for seed in seeds]
        gaps = [[own[column] - other[column] for own, other in pairs] for column in (3, 5)]
        lines.append(f"| {name} | " + " | ".join(_cell(one, signed=True) for one in gaps) + " |")
    return lines


def _mean(lines: Lines, name: str) -> float:
    known = [line[name] for line in lines if name in line]
    return statistics.fmean(known) if known else math.nan


def _cell(values: Sequence[float], *, signed: bool = False) -> str:
    known = [one for one in values if math.isfinite(one)]
    if not known:
        return "–"
    mean = f"{statistics.fmean(known):{'+' if signed else ''}.3f}"
    return f"{mean} ± {statistics.stdev(known) / math.sqrt(len(known)):.3f}" if len(known) > 1 else mean


HEAD = """# Training settings side by side

`{config}` with `{model}`, seeds {seeds}{common}. Made by `benchmarks/train_arms.py`, which says
how; means over the seeds ± standard error. Percentiles are the share of fixed verified random candidates that a reply
beats: of the table that is trained on in the first and last {last} updates (with exploration), of the tables held out
before and after (without). *Best of 8*: what the best of eight replies is expected to beat. *Entropy*: nats a decision
in the last {last} updates. *Flat groups*: share of the groups that were trained on and taught nothing; *refilled*:
groups an update that were sampled in place of such.
"""


if __name__ == "__main__":
    main()
