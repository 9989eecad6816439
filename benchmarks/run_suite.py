"""Runs `warpsmith optimize` over problem files, several processes side by side; the GPU lock keeps timing exclusive.

usage: python benchmarks/run_suite.py --out RUNS [--jobs 3] [--minutes M] FILE[,NAME=LITERAL...] ... [-- optimize flags]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def optimize(target: str, out: Path, flags: list[str], deadline: float | None) -> dict[str, object]:
    """One run in a process of its own; its JSON document, exit code and wall seconds."""
    path, *overrides = target.split(",")
    sets = [part for pair in overrides for part in ("--set", pair.replace(";", ","))]
    command = [
        sys.executable,
        "-m",
        "warpsmith",
        "optimize",
        path,
        *sets,
        "--out",
        str(out),
        "--json",
        *flags,
    ]
    start = time.monotonic()
    if deadline is not None and start > deadline:
        return {"target": target, "exit": None, "message": "not started: the time was up"}
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout) if done.stdout.strip() else None
    return {
        "target": target, "exit": done.returncode, "seconds": round(time.monotonic() - start, 2),
        "message": done.stderr.strip()[-2000:], "document": document,
    }  # fmt: skip


def main() -> int:
    """Exit status: the number of runs that did not verify anything (at most 99)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    arguments, flags = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    failed = 0
    with (arguments.out / "suite.jsonl").open("a") as log, ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(optimize, target, arguments.out, flags, deadline) for target in arguments.targets]
        for run in runs:
            row = run.result()
            log.write(json.dumps(row) + "\n")
            log.flush()
            failed += row["exit"] != 0
            print(f"{row['target']}: exit {row['exit']}, {row.get('seconds')} s", flush=True)
            if row["exit"] != 0:
                print(str(row["message"])[-600:], flush=True)
    return min(failed, 99)


if __name__ == "__main__":
    sys.exit(main())
