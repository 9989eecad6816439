"""A training as a process of its own: script.py MODEL FOLDER STEPS [GROUPS TASKS], groups as JSON lines of samples."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from train.toy import live, settings

from warpsmith.rl.train.sampler import Collected
from warpsmith.rl.train.settings import LossSection, SamplingSettings
from warpsmith.rl.train.task import Sample
from warpsmith.rl.train.trainer import train


def main(model: str, folder: str, steps: str, groups: str = "", tasks: str = "1") -> None:
    """Trains on the toy, or on what was collected."""
    made = settings(
        Path(model), steps=int(steps), checkpoint_every=1, stage="offline" if groups else "online",
        loss=LossSection(length=4.0), sampling=SamplingSettings(group_size=8, tasks=int(tasks)),
    )  # fmt: skip
    if not groups:
        train(made, live(made), Path(folder))
        return
    samples = [Sample.model_validate_json(line) for line in Path(groups).read_text().splitlines()]
    collected = [tuple(some) for _, some in groupby(samples, key=lambda one: one.group)]
    train(made, Collected(collected, made.sampling, live(made).advantages, seed=0), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
