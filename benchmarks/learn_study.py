"""What a language model learns of slots on recorded spaces, and what of that carries over to problems it never saw.

usage: python benchmarks/learn_study.py PART --spaces DIR --problems DIR --model PATH --to FOLDER [--seeds 3] [...]

PART:
  train     one training a seed, side by side, one GPU after the other; `--seconds` of a seed ends it at a checkpoint
  evaluate  replies of the base model and of every trained seed to every problem
  searches  random, tpe, builtin and the cost model's own order at as many evaluations
  live      the best of a trained model's first eight replies, judged anew on the device beside the recorded best
  page      docs/results/learn_h200.md and the curves as CSV

`--spaces`: what benchmarks/record_space.py wrote; `--problems`: the folder of the problems' files. Settings and the
split are in learn_study.toml; `--set KEY=VALUE` changes one. Everything is a line of FOLDER/study.jsonl or a folder of a
training below it: what is there is not made again, and a part that was broken off goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from learn_evaluate import evaluate_all, search_all
from learn_live import live_all
from learn_page import write_page
from learn_setup import Lines, Place, Study, machine, read_study

BESIDE = Path(__file__).resolve().parent
PARTS = ("train", "evaluate", "searches", "live", "page")


def main() -> int:
    """Exit status 0; 1 where a training failed."""
    options = parsed()
    study = read_study(options.config, options.model, options.set)
    place = Place(options.spaces, options.problems, options.arch)
    options.to.mkdir(parents=True, exist_ok=True)
    lines = Lines(options.to / "study.jsonl")
    if options.part == "one":
        return train_one(options, place)
    if options.part == "page":
        write_page(lines, options.to, study, options.out)
        return 0
    lines.add("call", part=options.part, command=" ".join(sys.argv[1:]), machine=machine(), at=time.time())
    if options.part == "train":
        return train_all(options, study)
    if options.part == "evaluate":
        evaluate_all(lines, options.to, study, place, range(options.seeds))
    elif options.part == "searches":
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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a seed's training over all calls; of `live`")
    parser.add_argument("--call", type=float, default=float("inf"), help="seconds after which this call ends trainings")
    parser.add_argument("--together", type=int, default=0, help="trainings side by side; 0: all")
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto", help="of `live`")
    parser.add_argument("--out", type=Path, help="the page")
    return parser.parse_args()


def train_all(options: argparse.Namespace, study: Study) -> int:
    """A process for each seed that is not done, on one GPU after the other."""
    import torch

    began, count = time.monotonic(), torch.cuda.device_count() if torch.cuda.is_available() else 0
    waiting = list(range(options.seeds))
    running: dict[int, subprocess.Popen[bytes]] = {}
    failed: list[int] = []
    while waiting or running:
        while waiting and len(running) < (options.together or options.seeds):
            seed = waiting.pop(0)
            left = options.call - (time.monotonic() - began)
            words = [sys.executable, __file__, "one", *_same(options), "--seed", str(seed), "--call", str(left)]
            where = {"CUDA_VISIBLE_DEVICES": str(seed % count)} if count > 1 else {}
            running[seed] = subprocess.Popen(words, env={**os.environ, **where})
        for seed, process in list(running.items()):
            if process.poll() is not None:
                del running[seed]
                failed += [seed] if process.returncode else []
        time.sleep(0.5)
    return 1 if failed else 0


def _same(options: argparse.Namespace) -> list[str]:
    """What a seed's own process is told of this one's command line."""
    words = []
    for name in ("spaces", "problems", "model", "to", "config", "arch", "seconds"):
        words += [f"--{name}", str(getattr(options, name))]
    return words + [word for one in options.set for word in ("--set", one)]


def train_one(options: argparse.Namespace, place: Place) -> int:
    """The training of one seed, as far as its time goes; it goes on from its last checkpoint."""
    from warpsmith.rl.tasks.scoring import ranked_within
    from warpsmith.rl.train.sampler import LiveTasks, advantage_rule
    from warpsmith.rl.train.trainer import train

    began = time.monotonic()
    study = read_study(options.config, options.model, options.set, options.seed)
    folder = options.to / f"seed-{options.seed}"
    folder.mkdir(exist_ok=True)
    spent = _spent(folder)
    if spent["step"] >= study.train.steps or spent["seconds"] >= options.seconds:
        return 0
    left = min(options.seconds - spent["seconds"], options.call)
    tasks = list(place.tasks(study.trained, study).values())
    held_out = list(place.tasks(study.unseen, study).values())
    source = LiveTasks(
        tasks, study.train.sampling, advantage_rule(study.train, ranked_within(study.rewards)), study.train.seed
    )
    ended = train(
        study.train, source, folder, held_out=held_out,
        interrupted=lambda: time.monotonic() - began > left,
        heard=lambda step, figures: _tell(options.seed, step, figures),
    )  # fmt: skip
    spent = {"step": ended.step, "seconds": spent["seconds"] + time.monotonic() - began, "stop": ended.stop}
    (folder / "spent.json").write_text(json.dumps(spent))
    return 0


def _spent(folder: Path) -> dict[str, Any]:
    path = folder / "spent.json"
    return json.loads(path.read_text()) if path.is_file() else {"step": 0, "seconds": 0.0}


def _tell(seed: int, step: int, figures: dict[str, float]) -> None:
    shown = ("percentile/mean", "entropy", "eval/percentile", "eval/best_of_8", "time/update")
    words = ", ".join(f"{name} {figures[name]:.3f}" for name in shown if name in figures)
    print(f"seed {seed}, update {step}: {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
