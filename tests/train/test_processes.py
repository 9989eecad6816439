"""Trainings as processes: one that is killed goes on, two that share a training learn what one would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from train.script import main
from train.test_trainer import learnt, lines, same, weights
from train.toy import live, settings

from warpsmith.rl.train.policy import load_policy

SCRIPT = Path(__file__).with_name("script.py")
LONG = 120


def started(*words: object, **more: str) -> subprocess.Popen[bytes]:
    """A training as a process."""
    root = SCRIPT.parents[2]
    paths = os.pathsep.join([str(root / "tests"), os.environ.get("PYTHONPATH", "")])
    surroundings = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | more
    return subprocess.Popen([sys.executable, str(SCRIPT), *map(str, words)], env=surroundings)


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    main(str(folder), str(tmp_path / "whole"), "40")
    killed = started(folder, tmp_path / "killed", 40)
    figures = tmp_path / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + LONG
    while not figures.exists() or figures.read_text().count("\n") < 5:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait(LONG) == -signal.SIGKILL
    main(str(folder), str(tmp_path / "killed"), "40")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert learnt(lines(tmp_path / "whole")) == learnt(lines(tmp_path / "killed"))


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_from_all_groups(folder: Path, tmp_path: Path) -> None:
    made = settings(folder)
    policy = load_policy(made.model)
    source = live(made)
    groups = tmp_path / "groups.jsonl"
    samples = [
        one.model_copy(update={"group": number})
        for number in range(4)
        for one in source.batch(number, policy, lambda: None).samples
    ]
    groups.write_text("".join(f"{one.model_dump_json()}\n" for one in samples))
    main(str(folder), str(tmp_path / "alone"), "3", str(groups), "2")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = [
        started(
            folder, tmp_path / "both", 3, groups, 1, WORLD_SIZE="2", RANK=str(rank), LOCAL_RANK=str(rank),
            LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [one.wait(LONG) for one in both] == [0, 0]
    alone, together = weights(tmp_path / "alone"), weights(tmp_path / "both")
    for name in alone.keys() - {"generator"}:
        assert (alone[name] - together[name]).abs().max() <= 1e-3 * alone[name].abs().max().clamp(min=1e-2)
    assert [line["step"] for line in lines(tmp_path / "both")] == [1, 2, 3]
