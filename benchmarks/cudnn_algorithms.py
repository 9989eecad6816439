"""What cuDNN's convolutions take by the algorithm of its heuristics and by the fastest one, row-major and channels
last; and convolutions that take a bias and a ReLU along beside plain ones.

usage: python benchmarks/cudnn_algorithms.py measure KERNELBENCH --rows ROWS.jsonl [--level 1] [--seconds 100]
       python benchmarks/cudnn_algorithms.py page ROWS.jsonl --out FILE.md

`measure` needs a GPU: the convolutions that eager calls for each problem, on random inputs, the median of seven runs
over a swept L2 cache. Rows are appended, so that a stopped run loses nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.kernels.problem import load_problem
from warpsmith.sandbox.cuda.benchmarked import benchmarked

_RUNS = 7
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
NETS = (
    ("VGG, first", (10, 3, 224, 224), (64, 3, 3, 3), 1, 1),
    ("VGG, second", (10, 64, 224, 224), (64, 64, 3, 3), 1, 1),
    ("VGG, fourth", (10, 128, 112, 112), (128, 128, 3, 3), 1, 1),
    ("VGG, last", (10, 512, 14, 14), (512, 512, 3, 3), 1, 1),
    ("ResNet, 1x1", (10, 64, 56, 56), (256, 64, 1, 1), 1, 0),
    ("ResNet, 3x3", (10, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    ("ResNet, stem", (10, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    ("SqueezeNet", (64, 16, 55, 55), (64, 16, 3, 3), 1, 1),
    ("AlexNet, first", (1024, 3, 224, 224), (96, 3, 11, 11), 4, 2),
)
"""Name, input, weight, stride and padding."""
Row = dict[str, Any]


class Seen(TorchDispatchMode):
    """Notes the convolutions that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "convolution" in str(func):
            x, weight, _, *rest = args
            self.calls.append((tuple(x.shape), tuple(weight.shape), *rest))
        return func(*args, **(kwargs or {}))


def timed(run: Callable[[], object]) -> float:
    """Microseconds, the median of a few runs."""
    run()
    flush = torch.zeros(64 << 20, dtype=torch.int32, device="cuda")
    found = []
    for _ in range(_RUNS):
        flush.add_(1)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * start.elapsed_time(end))
    return statistics.median(found)


def both(call: Callable[[], torch.Tensor]) -> list[float]:
    """By the algorithm of heuristics, and by the fastest one."""
    return [round(timed(call)), round(timed(lambda: benchmarked(call)))]


def convolution(x: torch.Tensor, weight: torch.Tensor, rest: tuple[Any, ...]) -> Callable[[], torch.Tensor]:
    """The call, without a bias."""
    return lambda: torch.ops.aten.convolution(x, weight, None, *rest)


def of_problem(path: Path) -> list[Row]:
    """A row for each convolution of a problem."""
    instance = load_problem(str(path)).instantiate(device="meta", seed=0)
    with Seen() as seen, torch.no_grad():
        instance.run()
    rows = []
    for given, taps, *rest in seen.calls:
        x, weight = torch.randn(given, device="cuda"), torch.randn(taps, device="cuda")
        row: Row = {"problem": path.stem, "x": given, "weight": taps, "transposed": rest[3], "groups": rest[5]}
        row["row_major"] = both(convolution(x, weight, tuple(rest)))
        if len(given) in _LAST:
            turned = [one.to(memory_format=_LAST[len(given)]) for one in (x, weight)]
            row["channels_last"] = both(convolution(turned[0], turned[1], tuple(rest)))
        rows.append(row)
        torch.cuda.empty_cache()
    return rows


def of_nets() -> list[Row]:
    """Plain convolutions of networks, and with bias and ReLU."""
    rows = []
    for name, given, taps, stride, padding in NETS:
        row: Row = {"net": name, "x": given, "weight": taps}
        for layout, order in (("channels_last", torch.channels_last), ("row_major", torch.contiguous_format)):
            x = torch.randn(given, device="cuda").to(memory_format=order)
            weight = torch.randn(taps, device="cuda").to(memory_format=order)
            bias, where = torch.randn(taps[0], device="cuda"), ((stride, stride), (padding, padding), (1, 1))
            plain = convolution(x, weight, (*where, False, (0, 0), 1))

            def along(x: Any = x, weight: Any = weight, bias: Any = bias, where: Any = where) -> torch.Tensor:
                return torch.ops.aten.cudnn_convolution_relu(x, weight, bias, *where, 1)

            row[layout] = [round(timed(plain)), round(timed(along))]
        rows.append(row)
    return rows


def measure(folder: Path, level: int, rows: Path, seconds: float) -> None:
    """Appends rows until time is up."""
    deadline = time.monotonic() + seconds
    files = sorted((folder / f"level{level}").glob("*.py"), key=lambda path: int(path.stem.split("_")[0]))
    with rows.open("a") as file:
        for row in of_nets():
            file.write(json.dumps(row) + "\n")
        for path in files:
            if time.monotonic() > deadline:
                break
            for row in of_problem(path):
                file.write(json.dumps(row) + "\n")
            file.flush()


def page(rows: list[Row]) -> str:
    """Both tables."""
    lines = [
        "# cuDNN's convolutions: heuristics, the fastest algorithm, layouts, and what goes along",
        "",
        "Device: NVIDIA H200, torch 2.11, TF32 allowed as torch allows it. Microseconds, the median of seven to nine "
        "runs over a swept L2 cache. `benchmark`: cuDNN times its algorithms at the first call. Written by "
        "`benchmarks/cudnn_algorithms.py`.",
        "",
        "| problem | x | weight | row-major: heuristics | benchmark | channels last: heuristics | benchmark |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in (row for row in rows if "problem" in row):
        last = row.get("channels_last") or ["–", "–"]
        kind = " transposed" * bool(row["transposed"]) + (f", {row['groups']} groups" if row["groups"] > 1 else "")
        sizes = [" x ".join(map(str, row[name])) for name in ("x", "weight")]
        lines.append(f"| {row['problem'][:44]}{kind} | {' | '.join([*sizes, *map(str, (*row['row_major'], *last))])} |")
    lines += [
        "",
        "| network | x | weight | channels last: plain | with bias and ReLU | row-major: plain | with bias and ReLU |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in (row for row in rows if "net" in row):
        sizes = [" x ".join(map(str, row[name])) for name in ("x", "weight")]
        figures = map(str, (*row["channels_last"], *row["row_major"]))
        lines.append(f"| {row['net']} | {' | '.join([*sizes, *figures])} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "page"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=Path, default=Path("rows.jsonl"))
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    if wanted.what == "measure":
        measure(wanted.path, wanted.level, wanted.rows, wanted.seconds)
        return 0
    text = page([json.loads(line) for line in wanted.path.read_text().splitlines()])
    if wanted.out is None:
        print(text)
    else:
        wanted.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
