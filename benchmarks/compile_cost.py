"""Times our compile of a softmax kernel against torch's `load_inline` for the same kernel on one machine.

python benchmarks/compile_cost.py [--arch sm_90] [--repeat 5] [--out FILE.md]

Ours is timed cold: an empty cache for every repetition, once with the compiler process already running (what
a run pays for each candidate) and once with starting it. `load_inline` gets a fresh build folder each time
and the same architecture alone. It needs nvcc, a host compiler, ninja and a CUDA build of torch; without them
the result says so. Prints one JSON object and a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.sandbox.driver_probe import probe
from warpsmith.tools.compile import Compiler

KERNEL = """extern "C" __global__ void __launch_bounds__(256) row_softmax(
    const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float part[8];
  const float* row = x + (long long)blockIdx.x * columns;
  float* out = y + (long long)blockIdx.x * columns;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float best = -3.402823466e38f;
  for (int i = threadIdx.x; i < columns; i += 256) best = fmaxf(best, row[i]);
  for (int d = 16; d; d >>= 1) best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, d));
  if (lane == 0) part[warp] = best;
  __syncthreads();
  for (int i = 0; i < 8; i++) best = fmaxf(best, part[i]);
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 256) sum += __expf(row[i] - best);
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < 8; i++) sum += part[i];
  const float scale = 1.0f / sum;
  for (int i = threadIdx.x; i < columns; i += 256) out[i] = __expf(row[i] - best) * scale;
}
"""

DECLARATION = "torch::Tensor softmax(torch::Tensor x);"
WRAPPER = """
torch::Tensor softmax(torch::Tensor x) {
  auto y = torch::empty_like(x);
  row_softmax<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1));
  return y;
}
"""


def time_ours(arch: str, repeat: int, *, start: bool) -> list[float]:
    """Seconds per cold compile; with `start` the compiler process is started inside the timed part."""
    step = KernelStep(kernel="row_softmax", grid=(1, 1, 1), block=(256, 1, 1), args=("in0", "out0", {"i32": 1}))
    candidate = Candidate(source=KERNEL, plan=LaunchPlan(steps=(step,)))
    warm_up = candidate.model_copy(update={"source": KERNEL.replace("256", "128")})
    seconds = []
    for _ in range(repeat):
        with (
            tempfile.TemporaryDirectory() as folder,
            Compiler(arch, cache_dir=Path(folder), jobs=1) as compiler,
        ):
            if not start:
                compiler.compile(warm_up)
            seconds.append(_timed(lambda compiler=compiler: compiler.compile(candidate).failure))
    return seconds


def why_no_load_inline() -> str | None:
    """What this machine lacks for `load_inline`, or None."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not a CUDA build"
    for tool in ("nvcc", "ninja"):
        if shutil.which(tool) is None:
            return f"no {tool} on the path"
    return None


def time_load_inline(arch: str, repeat: int) -> list[float]:
    """Seconds per `load_inline` with a fresh name and build folder, for one architecture."""
    from torch.utils.cpp_extension import load_inline

    number = arch.removeprefix("sm_")
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{number[:-1]}.{number[-1]}"
    seconds = []
    for index in range(repeat):
        with tempfile.TemporaryDirectory() as folder:

            def build(name: str = f"softmax_{os.getpid()}_{index}", folder: str = folder) -> None:
                load_inline(
                    name, cpp_sources=DECLARATION, cuda_sources=KERNEL + WRAPPER, functions=["softmax"],
                    build_directory=folder,
                )  # fmt: skip

            seconds.append(_timed(build))
    return seconds


def measure(arch: str, repeat: int) -> dict[str, Any]:
    """Everything, as one JSON-able object; what could not be measured is None with a reason."""
    import torch

    facts = probe()
    with tempfile.TemporaryDirectory() as folder, Compiler(arch, cache_dir=Path(folder), jobs=1) as compiler:
        version = compiler.nvrtc_version
    reason = why_no_load_inline()
    ours, first = time_ours(arch, repeat, start=False), time_ours(arch, repeat, start=True)
    inline = None if reason else time_load_inline(arch, max(1, min(repeat, 3)))
    return {
        "device": facts.devices[0]["name"] if facts.devices else None,
        "arch": arch,
        "nvrtc": version,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "ours_s": ours,
        "ours_with_start_s": first,
        "load_inline_s": inline,
        "load_inline_missing": reason,
        "ratio": statistics.median(inline) / statistics.median(ours) if inline else None,
        "ratio_with_start": statistics.median(inline) / statistics.median(first) if inline else None,
    }


def markdown(result: dict[str, Any]) -> str:
    """The result as a table of one row."""

    def median(key: str) -> str:
        return f"{statistics.median(result[key]):.3f}" if result[key] else "not measured"

    def times(key: str) -> str:
        return f"{result[key]:.0f}x" if result[key] else f"not measured: {result['load_inline_missing']}"

    head = "| device | NVRTC | torch | cores | ours, s | with start, s | load_inline, s | ratio | with start |"
    cells = (
        result["device"] or "no GPU", result["nvrtc"], result["torch"], result["cores"], median("ours_s"),
        median("ours_with_start_s"), median("load_inline_s"), times("ratio"), times("ratio_with_start"),
    )  # fmt: skip
    return "\n".join((head, "|" + "---|" * len(cells), "| " + " | ".join(map(str, cells)) + " |"))


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    failure = action()
    seconds = time.perf_counter() - began
    if failure is not None:
        raise SystemExit(f"the benchmark's kernel does not compile: {failure}")
    return seconds


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write the Markdown table here")
    options = parser.parse_args(arguments)
    result = measure(options.arch, options.repeat)
    print(json.dumps(result))
    print(markdown(result))
    if options.out:
        options.out.write_text(markdown(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
