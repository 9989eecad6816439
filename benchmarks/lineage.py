"""Prints the lineage of a run's best candidate: each ancestor with its time and the slots that changed.

usage: python benchmarks/lineage.py RUN_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def lineage(folder: Path) -> list[dict[str, Any]]:
    """Outcomes from the first ancestor to the best, the latest outcome of each."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    known = {line["candidate"]: line for line in lines}
    chain = []
    candidate: str | None = json.loads((folder / "best" / "verdict.json").read_text())["candidate"]
    while candidate is not None:
        chain.append(known[candidate])
        candidate = known[candidate]["parent"]
    return chain[::-1]


def main() -> None:
    """A Markdown table."""
    chain = lineage(Path(sys.argv[1]))
    first = chain[0]["time_us"]["p50"]
    print("| candidate | status | ms | times faster than the first | changed slots |")
    print("|---|---|---|---|---|")
    before: dict[str, Any] = {}
    for outcome in chain:
        slots = {k: v for k, v in outcome["slots"].items() if len(str(v)) < 24 and v != ""}
        changed = ", ".join(f"{name}={value}" for name, value in slots.items() if before.get(name) != value)
        time = outcome["time_us"]["p50"]
        print(f"| {outcome['candidate']} | {outcome['status']} | {time / 1e3:.3f} | {first / time:.2f} | {changed} |")
        before = slots


if __name__ == "__main__":
    main()
