"""What a language model learns of slots on recorded spaces, and what of that carries over to problems it never saw.

usage: python benchmarks/learn_study.py PART --spaces DIR --problems DIR --model PATH --to FOLDER [--seeds 3] [...]

PART:
  train     one training a seed, side by side, one GPU after the other; one that is done answers every problem, and
            beside them the model as it was does. `--seconds` of a seed ends it at a checkpoint
  answers   the same without training on: replies of the versions that there are
  searches  random, tpe, builtin and the cost model's own order at as many evaluations; needs no GPU
  live      the best of a trained model's first eight replies, judged anew on the device beside the recorded best
  page      docs/results/learn_h200.md and the curves as CSV

`--spaces`: what benchmarks/record_space.py wrote; `--problems`: the folder of the problems' files. Settings and the
split are in learn_study.toml; `--set KEY=VALUE` changes one. Everything is a line of a file `*.jsonl` below FOLDER or a
training there: what is there is not made again, and a part that was broken off goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from learn_evaluate import replies_of, search_all
from learn_live import live_all
from learn_page import SPENT, write_page
from learn_setup import Lines, Place, Study, machine, read_lines, read_study

from warpsmith.rl.tasks.spaces import SpaceTask

BESIDE = Path(__file__).resolve().parent
PARTS = ("train", "answers", "searches", "live", "page")
BASE = -1
"""In place of a seed: the model as it was."""


def main() -> int:
    """Exit status 0; 1 where a training failed."""
    options = parsed()
    study = read_study(options.config, options.model, options.set, max(options.seed, 0))
    place = Place(options.spaces, options.problems, options.arch)
    if options.part == "one":
        return one_seed(options, study, place)
    lines = read_lines(options.to)
    if options.part == "page":
        write_page(lines, options.to, study, options.out)
        return 0
    lines.add("call", part=options.part, command=" ".join(sys.argv[1:]), machine=machine(), at=time.time())
    if options.part in ("train", "answers"):
        return all_seeds(options)
    if options.part == "searches":
        search_all(lines, study, place)
    else:
        live_all(lines, study, place, seed=options.seed, seconds=options.seconds, device=options.device)
    return 0


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*PARTS, "one"), metavar="PART")
    parser.add_argument("--spaces", type=Path, required=True)
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=BESIDE / "learn_study.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of `live`")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of a seed's training in all calls; of `live`")
    parser.add_argument("--call", type=float, default=math.inf, help="seconds after which this call ends trainings")
    parser.add_argument("--together", type=int, default=0, help="processes side by side; 0: all")
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto", help="of `live`")
    parser.add_argument("--out", type=Path, help="the page")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def all_seeds(options: argparse.Namespace) -> int:
    """A process for the model as it was and one for each seed, on one GPU after the other."""
    import torch

    began, count = time.monotonic(), torch.cuda.device_count() if torch.cuda.is_available() else 0
    waiting = [*range(options.seeds), BASE]
    together = options.together or len(waiting)
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // together))}
    running: dict[int, subprocess.Popen[bytes]] = {}
    failed: list[int] = []
    while waiting or running:
        while waiting and len(running) < together:
            seed = waiting.pop(0)
            left = options.call - (time.monotonic() - began)
            words = [sys.executable, __file__, "one", *_same(options), f"--seed={seed}", f"--call={left}"]
            where = {"CUDA_VISIBLE_DEVICES": str(seed % count)} if count > 1 else {}
            running[seed] = subprocess.Popen(words, env={**threads, **os.environ, **where})
        for seed, process in list(running.items()):
            if process.poll() is not None:
                del running[seed]
                failed += [seed] if process.returncode else []
        time.sleep(0.5)
    return 1 if failed else 0


def _same(options: argparse.Namespace) -> list[str]:
    """What a seed's own process is told of this one's command line."""
    words = ["--answer"] if options.part == "answers" else []
    for name in ("spaces", "problems", "model", "to", "config", "arch", "seconds"):
        words += [f"--{name}", str(getattr(options, name))]
    return words + [word for one in options.set for word in ("--set", one)]


def one_seed(options: argparse.Namespace, study: Study, place: Place) -> int:
    """Trains one seed as far as its time goes, from its last checkpoint on; once that is over, its replies."""
    began = time.monotonic()
    folder = options.to / ("base" if options.seed == BASE else f"seed-{options.seed}")
    folder.mkdir(parents=True, exist_ok=True)
    tasks = place.tasks(study.unseen + study.trained, study)
    lines = Lines(folder / "replies.jsonl")
    if options.seed == BASE:
        replies_of(lines, study, tasks, "base", BASE, None)
        return 0
    spent = _spent(folder)
    if not options.answer and not _done(spent, options, study):
        spent = _trained(options, study, tasks, folder, began, spent)
    if options.answer or _done(spent, options, study):
        found = sorted((folder / "policy").glob("v*"))
        if found:
            replies_of(lines, study, tasks, "trained", options.seed, found[-1])
    return 0


def _trained(
    options: argparse.Namespace, study: Study, tasks: dict[str, SpaceTask], folder: Path, began: float,
    spent: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """One training, until its time or this call's is over; what is spent then."""
    from warpsmith.rl.tasks.scoring import ranked_within
    from warpsmith.rl.train.sampler import LiveTasks, advantage_rule
    from warpsmith.rl.train.trainer import train

    settings = study.train
    left = min(options.seconds - spent["seconds"], options.call)
    own, others = ([tasks[name] for name in names if name in tasks] for names in (study.trained, study.unseen))
    source = LiveTasks(own, settings.sampling, advantage_rule(settings, ranked_within(study.rewards)), settings.seed)
    ended = train(
        settings, source, folder, held_out=others, interrupted=lambda: time.monotonic() - began > left,
        heard=lambda step, figures: _tell(options.seed, step, figures),
    )  # fmt: skip
    spent = {"step": ended.step, "seconds": spent["seconds"] + time.monotonic() - began, "stop": ended.stop}
    (folder / SPENT).write_text(json.dumps(spent))
    return spent


def _done(spent: dict[str, Any], options: argparse.Namespace, study: Study) -> bool:
    return bool(spent["step"] >= study.train.steps or spent["seconds"] >= options.seconds)


def _spent(folder: Path) -> dict[str, Any]:
    path = folder / SPENT
    return json.loads(path.read_text()) if path.is_file() else {"step": 0, "seconds": 0.0}


def _tell(seed: int, step: int, figures: dict[str, float]) -> None:
    shown = ("percentile/mean", "entropy", "eval/percentile", "eval/best_of_8", "time/update")
    words = ", ".join(f"{name} {figures[name]:.3f}" for name in shown if name in figures)
    print(f"seed {seed}, update {step}: {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
