"""A run of `warpsmith optimize` whose processes are killed at random moments, resumed until it ends."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.problems import problem
from support.processes import alive, command, descendants, wait_until

GONE_S = 20.0
"""By when everything that a killed command started has to be gone."""
MOMENT_S = 60.0
"""How long to wait for a run that can be killed."""

SHARED = ("warpsmith-locks", "torchinductor_", "warpsmith-run-")
"""What runs share below the folder for temporary files and keep on purpose; folders of killed workers (the last) are
taken away by the next worker that starts a minute later."""


@dataclass(slots=True)
class Siege:
    """One run in `folder`, and what happened to it."""

    folder: Path
    budget: int
    rng: random.Random
    kills: list[str] = field(default_factory=list)
    """What was killed, in order."""
    strays: list[str] = field(default_factory=list)
    """Command lines that outlived the command they belong to."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> Path | None:
        """The run folder, once it can be resumed."""
        found = sorted(self.folder.glob("runs/*/checkpoints.db"))
        return found[0].parent if found else None

    def start(self) -> None:
        """The command, from the beginning or where the run stands."""
        (self.folder / "relu.py").write_text(problem())
        resume = ["--resume", str(self.run)] if self.run else []
        arguments = [
            "optimize", "relu.py", "--device", "cpu", "--policy", "random", "--budget", str(self.budget), "--seed", "3",
            "--out", str(self.folder / "runs"), "--quiet", *resume,
        ]  # fmt: skip
        surroundings = os.environ | {"WARPSMITH_CACHE": str(self.folder / "cache"), "TMPDIR": str(self.temporary)}
        log = (self.folder / "log.txt").open("ab")
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "warpsmith", *arguments], cwd=self.folder, env=surroundings, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def temporary(self) -> Path:
        """Where the command puts temporary files."""
        place = self.folder / "tmp"
        place.mkdir(exist_ok=True)
        return place

    def kill_once(self, *, command_alone: bool = False) -> bool:
        """Kills the command or one of its processes at a random moment; False where the run had ended before."""
        process = self.process
        assert process is not None
        if not wait_until(lambda: self.run is not None or process.poll() is not None, MOMENT_S):
            return False
        time.sleep(self.rng.uniform(0.0, 1.0))
        below = descendants(process.pid)
        if process.poll() is not None:
            return False
        own = command_alone or not below or self.rng.random() < 0.3
        victim = process.pid if own else self.rng.choice(below)
        self.kills.append(command(victim)[:200])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if own:
            process.wait()
            if not wait_until(lambda: not any(alive(pid) for pid in below), GONE_S):
                self.strays += [command(pid) for pid in below if alive(pid)]
            self.start()
        return True

    def finish(self, timeout_s: float = 180.0) -> int:
        """Lets the command end, and resumes until it did so by itself; its exit code."""
        assert self.process is not None
        below = descendants(self.process.pid)
        code = self.process.wait(timeout_s)
        if not wait_until(lambda: not any(alive(pid) for pid in below), GONE_S):
            self.strays += [command(pid) for pid in below if alive(pid)]
        return code

    def outcomes(self) -> list[dict[str, Any]]:
        """Every line of results.jsonl."""
        assert self.run is not None
        return [json.loads(line) for line in (self.run / "results.jsonl").read_text().splitlines()]

    def verdicts(self) -> Mapping[tuple[str, bool], str]:
        """Status by candidate and by whether it is a full verdict."""
        return {
            (one["candidate"], one["status"] != "screened"): one["status"]
            for one in self.outcomes()
            if one["status"] != "infrastructure_error"
        }

    def faults(self) -> list[str]:
        """What is lost, doubled or left behind."""
        assert self.run is not None
        found = [f"still there: {line}" for line in self.strays]
        places = [
            (one["candidate"], "screen" if one["status"] == "screened" else "full")
            for one in self.outcomes()
            if one["status"] != "infrastructure_error"
        ]
        found += [f"{place} has {times} lines" for place, times in Counter(places).items() if times > 1]
        found += [f"left behind: {path}" for path in self._temporary_files()]
        for line in (self.run / "events.jsonl").read_text().splitlines():
            json.loads(line)
        blobs = {path.stem for path in (self.run / "blobs").glob("*.json")}
        found += [f"no source of {one}" for one, _ in places if one not in blobs]
        return found

    def _temporary_files(self) -> list[Path]:
        assert self.run is not None
        hidden = [path for path in self.run.rglob(".*") if path.is_file()]
        return [*hidden, *(path for path in self.temporary.iterdir() if not path.name.startswith(SHARED))]
