"""GPU memory that judging took, beside what eager takes, from the outcomes of runs.

usage: python benchmarks/peak_memory.py FOLDER... [--limit GB] [--above] > docs/results/peak_memory_h200.md

A FOLDER is a run, or holds runs at any depth, as a suite's does; of several runs of a problem the last one that
measured counts. The exit code is 1 where a peak is above the bound and a baseline's own is not; `--above` prints the
lines above it alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.verification.memory import FLOOR_BYTES, TIMES_EAGER

GIB = 1 << 30


@dataclass(frozen=True)
class Peak:
    """What the outcomes of one run say."""

    problem: str
    device: str
    verdicts: int
    correct: int
    eager_bytes: int
    judge_bytes: int
    baseline_bytes: int
    """The most that a compiled baseline takes by itself; 0 where none was measured."""

    @property
    def bound_bytes(self) -> int:
        """What judging may take."""
        return max(TIMES_EAGER * self.eager_bytes, FLOOR_BYTES)

    @property
    def above(self) -> bool:
        """Whether judging took more."""
        return self.judge_bytes > self.bound_bytes

    @property
    def by_baseline(self) -> bool:
        """Whether a baseline alone takes more: nothing that judging leaves out would help."""
        return self.baseline_bytes > self.bound_bytes


def runs_in(folder: Path) -> Iterator[Path]:
    """Run folders, in order."""
    yield from sorted(path.parent for path in folder.rglob("manifest.json"))


def peak_of(run: Path) -> Peak | str:
    """The largest peaks of a run, or its problem where none was measured."""
    with RunStore.open(run, writable=False) as store:
        name, outcomes = Path(store.manifest().problem_path).stem, store.outcomes()
    measured: Sequence[Outcome] = [one for one in outcomes if one.judge_peak_bytes and one.eager_peak_bytes]
    if not measured:
        return name
    return Peak(
        problem=name, device=measured[0].verified_on or "", verdicts=len(measured),
        correct=sum(one.correct for one in measured),
        eager_bytes=max(one.eager_peak_bytes or 0 for one in measured),
        judge_bytes=max(one.judge_peak_bytes or 0 for one in measured),
        baseline_bytes=max((most for one in measured for most in (one.baseline_peak_bytes or {}).values()), default=0),
    )  # fmt: skip


def latest(found: Iterable[Peak | str]) -> list[Peak | str]:
    """One a problem: the last that measured, else its name."""
    kept: dict[str, Peak | str] = {}
    for one in found:
        if isinstance(one, Peak):
            kept[one.problem] = one
        else:
            kept.setdefault(one, one)
    return list(kept.values())


def table(found: Sequence[Peak | str], limit_gb: float | None, *, above: bool) -> Iterator[str]:
    """The page, line by line."""
    peaks = [one for one in found if isinstance(one, Peak)]
    over = [one for one in peaks if one.above]
    alone = sum(one.by_baseline for one in over)
    devices = ", ".join(sorted({one.device for one in peaks})) or "none"
    held = "" if limit_gb is None else f", held to {limit_gb:g} GB"
    yield "# Memory of judging\n"
    yield (
        f"Device: {devices}{held}. Peaks of torch's allocator in GiB: of eager with its weights and inputs, and of the "
        f"process that judged (audit, references, verdicts, timing with its baselines). The bound is {TIMES_EAGER} "
        f"times eager's peak, and no less than {FLOOR_BYTES / GIB:g} GiB: {len(over)} of {len(peaks)} problems are "
        f"above it, {alone} of them because torch.compile alone takes more (`compiled`: its own peak with weights and "
        "inputs, and nothing of the judge's beside it).\n"
    )
    yield "| problem | verdicts | correct | eager | compiled | judging | times eager | bound |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in over if above else peaks:
        times = one.judge_bytes / one.eager_bytes
        compiled = f"{one.baseline_bytes / GIB:.2f}" if one.baseline_bytes else "–"
        yield (
            f"| {one.problem} | {one.verdicts} | {one.correct} | {one.eager_bytes / GIB:.2f} | "
            f"{compiled} | {one.judge_bytes / GIB:.2f} | {times:.2f} | {one.bound_bytes / GIB:.2f} |"
        )
    for one in found:
        if isinstance(one, str) and not above:
            yield f"| {one} | 0 | – | – | – | – | – | – |"


def main() -> int:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--limit", type=float, help="GB that the runs were held to")
    parser.add_argument("--above", action="store_true", help="only what is above the bound")
    options = parser.parse_args()
    found = latest(peak_of(run) for folder in options.folders for run in runs_in(folder))
    sys.stdout.write("\n".join(table(found, options.limit, above=options.above)) + "\n")
    return int(any(isinstance(one, Peak) and one.above and not one.by_baseline for one in found))


if __name__ == "__main__":
    sys.exit(main())
