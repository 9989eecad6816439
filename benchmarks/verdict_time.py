"""Prints the median time of a full verdict over run folders: GPU work (verify + time), and with the compile.

usage: python benchmarks/verdict_time.py RUN_FOLDER...
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from results_table import read_run


def main() -> None:
    """One line. References and torch.compile of the baseline are made once a run and are not in a verdict."""
    verdicts = [pair for folder in sys.argv[1:] for pair in read_run(Path(folder))["verdict_s"]]
    gpu = median(work for _, work in verdicts)
    both = median(compiled + work for compiled, work in verdicts)
    print(f"{len(verdicts)} full verdicts: median {gpu:.2f} s of GPU, {both:.2f} s with the compile")


if __name__ == "__main__":
    main()
