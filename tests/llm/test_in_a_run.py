"""What a person meets of all this in `optimize`: prices, caps, lost servers, Ctrl-C while a model is asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from llm.kit import KEY, Desk
from support.command import command
from support.problems import problem

from warpsmith.agents.llm.scripted import Fault, RandomLegal

pytestmark = [pytest.mark.slow, pytest.mark.network]


def words(at: Desk, *more: str) -> list[str]:
    policy = f"chat:scripted@{at.server.base_url}"
    return ["optimize", "good.py", "--device", "cpu", "--budget", "3", "--policy", policy, *more]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(problem())
    return tmp_path


def test_money_is_not_capped_without_a_price(desk: Callable[..., Desk], folder: Path) -> None:
    at = desk()
    done = command(*words(at, "--max-cost", "1"), cwd=folder)
    assert done.returncode == 2
    assert "--max-cost cannot be kept" in done.stderr
    assert "--price" in done.stderr
    done = command(*words(at, "--price", "cheap"), cwd=folder)
    assert done.returncode == 2
    assert at.server.requests == []


def test_a_run_is_paid_once_and_its_key_is_nowhere(desk: Callable[..., Desk], folder: Path) -> None:
    at = desk(player=RandomLegal(2), key=KEY)
    done = command(*words(at, "--json"), cwd=folder)
    assert "key" in done.stdout + done.stderr
    os.environ["WARPSMITH_API_KEY"] = KEY
    try:
        done = command(*words(at, "--json", "--price", "1/4", "--max-cost", "5"), cwd=folder)
        assert done.returncode == 0, done.stderr
        run = folder / json.loads(done.stdout)["run"]
        asked = len(at.server.requests)
        lines = [json.loads(line) for line in (run / "replies.jsonl").read_text().splitlines()]
        assert all(line["call"]["cost_usd"] > 0 for line in lines if line.get("call") and not line["call"].get("error"))
        again = command("optimize", "good.py", "--device", "cpu", "--resume", str(run), "--json", cwd=folder)
        assert again.returncode == 0, again.stderr
        assert len(at.server.requests) == asked > 0
    finally:
        del os.environ["WARPSMITH_API_KEY"]
    files = [path for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_ctrl_c_twice_does_not_wait_for_a_reply(desk: Callable[..., Desk], folder: Path) -> None:
    at = desk(faults=[Fault("slow", seconds=300.0)])
    surroundings = os.environ | {"WARPSMITH_CACHE": str(folder / "cache")}
    line = [sys.executable, "-P", "-m", "warpsmith", *words(at)]
    with subprocess.Popen(
        line, cwd=folder, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        while not at.server.requests and run.poll() is None:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=120)
    assert run.returncode == 130, said
    assert "--resume" in said
    assert "Traceback" not in said
