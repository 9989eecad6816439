"""What default weights say of problems that they were made without, beside the cost model's prior.

usage: python benchmarks/slot_defaults.py [FILE ...] [--out docs/results/slot_defaults.md]

FILE holds timings as `python -m warpsmith.app.slots collect` writes them; without one those in `benchmarks/data`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from warpsmith.rl.slots.offline import LeftOut, OfflineSettings, left_out
from warpsmith.rl.slots.records import read_records

DATA = Path(__file__).parent / "data" / "h200_spaces.jsonl.xz"


def main() -> None:
    """Leaves every problem out once, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    files = options.files or [DATA]
    groups = [one for file in files for one in read_records(file)]
    devices = ", ".join(sorted({one.device for one in groups}))
    found = sorted(left_out(groups, OfflineSettings()), key=lambda one: one.family)
    text = page(found, devices, ", ".join(file.name for file in files))
    if options.out is not None:
        options.out.write_text(text)
    else:
        print(text)


def page(found: Sequence[LeftOut], devices: str, files: str) -> str:
    """Means by family, then every problem."""
    settings = OfflineSettings()
    better = sum(one.spearman[1] > one.spearman[0] for one in found)
    head = "| rank correlation, prior | learnt | first choice, prior | learnt | until 5 %, prior | learnt |"
    text = [
        HEAD.format(files=files, devices=devices, bias=settings.bias, pairs=settings.pairs),
        f"The rank correlation is higher than the prior's in {better} of {len(found)} cases; the mean rises from",
        f"{_mean(found, 'spearman', 0):.2f} to {_mean(found, 'spearman', 1):.2f}. The first choice takes",
        f"{_mean(found, 'first', 0):.3f} of the best time by the prior, {_mean(found, 'first', 1):.3f} as learnt.",
        "", f"| family | problems {head}", "|---" * 8 + "|",
    ]  # fmt: skip
    for family in dict.fromkeys(one.family for one in found):
        own = [one for one in found if one.family == family]
        text.append(f"| {family} | {len(own)} {_cells(own)}")
    text += ["", f"| family, problem | candidates {head}", "|---" * 8 + "|"]
    text += [f"| {one.family}, {one.problem} | {one.candidates} {_cells([one])}" for one in found]
    return "\n".join(text) + "\n"


def _mean(found: Sequence[LeftOut], name: str, side: int) -> float:
    return fmean(float(getattr(one, name)[side]) for one in found)


def _cells(own: Sequence[LeftOut]) -> str:
    kinds = (("spearman", "{:.2f}"), ("first", "{:.3f}"), ("until", "{:.1f}"))
    cells = [form.format(_mean(own, name, side)) for name, form in kinds for side in (0, 1)]
    return "| " + " | ".join(cells) + " |"


HEAD = """# Default weights of slot policies on problems they were made without

Timings of {files} ({devices}). Each problem is left out once; weights made of the other problems of its family
order its measured candidates by the policy's likelihood, and so does the cost model's prior alone. *Rank correlation*:
Spearman's, with the times. *First choice*: time of the likeliest measured candidate over the best one's. *Until 5 %*:
candidates by falling likelihood until one is within 5 % of the best. Made by `benchmarks/slot_defaults.py`. The penalty
(precision {bias:g} of biases, {pairs:g} of pairs) was chosen on these same problems among four, for the first choice:
weaker ones (3 and 10, 10 and 30) order the rest better (rank correlation 0.68 and 0.65) and choose worse first (1.090
and 1.085 of the best time); with stronger ones (100 and 300) the first choice is the prior's. Some problems compute
nearly the same, so that leaving one out does not leave out all that is like it. A search was not measured: that takes a
GPU.
"""


if __name__ == "__main__":
    main()
