"""docs/results/train_throughput_h200.md from what benchmarks/train_throughput.py measured.

usage: python benchmarks/train_throughput_page.py RUN.json ... --out docs/results/train_throughput_h200.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HEAD = """# Training beside TRL's trainer

Made by `benchmarks/train_throughput.py` (`benchmarks/gpu_round.sh OUT throughput`) and
`benchmarks/train_throughput_page.py`. Both trainers, one after the other in one process, on the same prompts, with
adapters of the same rank on the same layers. *Sampling*: a batch of replies; here under a slot grammar, where only
choices take a forward pass of their own, TRL's `GRPOTrainer` with transformers' `generate` and free text of the same
length. *Update*: forward, loss (dapo), backward, optimizer, on the same token ids. Tokens a second: of sampling, tokens
of the replies; of an update, tokens of prompts and replies, whatever a trainer reads of them (here a prompt is read
once for its group). Seconds are medians, least and most in brackets; memory is the peak of torch's allocator.
"""


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    parts = [HEAD, *(section(json.loads(path.read_text())) for path in options.runs)]
    options.out.write_text("\n".join(parts))


def section(found: dict[str, Any]) -> str:
    """One run."""
    chosen, machine, tokens = found["settings"], found["machine"], found["tokens"]
    kind = f"weights {chosen['dtype']}" + (", products in bfloat16 (autocast)" if chosen["autocast"] else "")
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "transformers", "peft", "trl"))
    model, device = Path(chosen["model"] or "tiny").stem, machine["gpu"] or machine["cpu"]
    lines = [
        f"## {kind}", "",
        f"{model}, {device}, {versions}. {tokens['replies']} replies of {tokens['completion']:.0f} tokens "
        f"({tokens['decisions']:.0f} of them choices) behind prompts of {tokens['prompt']:.0f}, groups of "
        f"{chosen['group_size']}, adapters of rank {chosen['rank']}, {chosen['micro_batch']} replies at once, "
        f"{chosen['repeat']} repeats.",
        "", "| | here | TRL | ratio |", "|---|---|---|---|",
    ]  # fmt: skip
    for what in ("sampling", "update"):
        one, other = found["ours"][what], found["trl"][what]
        ratio = one["tokens_per_s"] / other["tokens_per_s"]
        lines += [
            f"| {what}, tokens/s | {one['tokens_per_s']:.0f} | {other['tokens_per_s']:.0f} | {ratio:.2f} |",
            f"| {what}, s | {spread(one)} | {spread(other)} | |",
            f"| {what}, GiB | {one['peak_gib']:.1f} | {other['peak_gib']:.1f} | |",
        ]
    both = [sum(found[who][what]["median_s"] for what in ("sampling", "update")) for who in ("ours", "trl")]
    lines += [f"| a batch and its update, s | {both[0]:.3f} | {both[1]:.3f} | {both[1] / both[0]:.2f} |", ""]
    return "\n".join(lines)


def spread(one: dict[str, float]) -> str:
    """Median with least and most."""
    return f"{one['median_s']:.3f} [{one['least_s']:.3f}, {one['most_s']:.3f}]"


if __name__ == "__main__":
    main()
