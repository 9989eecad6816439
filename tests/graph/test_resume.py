"""Kills and interruptions: a resumed search neither loses nor repeats an evaluation and ends as if nothing happened."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.graph.slow_search import new_store

SCRIPT = Path(__file__).parent / "slow_search.py"
ROOT = Path(__file__).resolve().parents[2]
BUDGET = 18


def start(folder: Path, delay: float, *, resume: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(folder), str(BUDGET), str(delay), *(["resume"] if resume else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def results(folder: Path) -> list[dict[str, object]]:
    text = (folder / "results.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def wait_for(folder: Path, lines: int, process: subprocess.Popen[str]) -> None:
    while len(results(folder)) < lines and process.poll() is None:
        time.sleep(0.005)
