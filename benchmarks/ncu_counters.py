"""Compares the emulator's counters with Nsight Compute's on five kernels.

python benchmarks/ncu_counters.py --out FOLDER [--ncu ncu] [--arch sm_90]

Needs an NVIDIA GPU, `ncu` with permission to read counters, cupy and numpy. The kernels are compiled once by NVRTC:
cupy launches the cubin under ncu, the emulator runs the PTX of the same compile. Writes `ncu_counters.json`,
`ncu_counters.md` and ncu's own output to FOLDER. Instruction counts are left out: PTX is not SASS. The kernels give
ptxas nothing to merge, so that each PTX access is one SASS access.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warpsmith.kernels.records import CompiledModule, CompileReport, KernelStep, LaunchPlan
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.sandbox.nvrtc import SUCCESS, load_nvrtc

SOURCE = r"""
extern "C" __global__ void coalesced_copy(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
extern "C" __global__ void strided_copy(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[(i % 4096) * 8 + i / 4096 % 8];
}
extern "C" __global__ void vector_copy(const float4* __restrict__ x, float4* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[32][32];
  int c = blockIdx.x * 32, r = blockIdx.y * 32;
  for (int k = threadIdx.y; k < 32; k += 8) s[k][threadIdx.x] = x[(r + k) * n + c + threadIdx.x];
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += 8) y[(c + k) * n + r + threadIdx.x] = s[threadIdx.x][k];
}
extern "C" __global__ void padded_transpose(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[32][33];
  int c = blockIdx.x * 32, r = blockIdx.y * 32;
  for (int k = threadIdx.y; k < 32; k += 8) s[k][threadIdx.x] = x[(r + k) * n + c + threadIdx.x];
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += 8) y[(c + k) * n + r + threadIdx.x] = s[threadIdx.x][k];
}
extern "C" __global__ void tiled_gemm(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float a[16][17], b[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float acc = 0.f;
  for (int k0 = 0; k0 < n; k0 += 16) {
    a[ty][tx] = x[row * n + k0 + tx];
    b[ty][tx] = x[(k0 + ty) * n + col];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 16; k++) acc = fmaf(a[ty][k], b[k][tx], acc);
    __syncthreads();
  }
  y[row * n + col] = acc;
}
"""

Dim3 = tuple[int, int, int]
COPY, SIDE, GEMM = 1 << 18, 512, 256


@dataclass(frozen=True, slots=True)
class Case:
    """One launch: float32 elements of input and output, and the number that the kernel is given."""

    name: str
    grid: Dim3
    block: Dim3
    elements: int
    n: int


CASES = (
    Case("coalesced_copy", (COPY // 256, 1, 1), (256, 1, 1), COPY, COPY),
    Case("strided_copy", (COPY // 256, 1, 1), (256, 1, 1), COPY, COPY),
    Case("vector_copy", (COPY // 1024, 1, 1), (256, 1, 1), COPY, COPY // 4),
    Case("transpose", (SIDE // 32, SIDE // 32, 1), (32, 8, 1), SIDE * SIDE, SIDE),
    Case("padded_transpose", (SIDE // 32, SIDE // 32, 1), (32, 8, 1), SIDE * SIDE, SIDE),
    Case("tiled_gemm", (GEMM // 16, GEMM // 16, 1), (16, 16, 1), GEMM * GEMM, GEMM),
)

METRICS = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_load_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
"""Our counter -> ncu's metric."""

Counts = dict[str, dict[str, float]]


def compile_kernels(arch: str, folder: Path) -> None:
    """Writes kernels.cubin and kernels.ptx of one compile."""
    done = load_nvrtc().compile(SOURCE, options=(f"--gpu-architecture={arch}", "-lineinfo"))
    if done.code != SUCCESS:
        raise SystemExit(f"NVRTC: {done.log}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernels.cubin").write_bytes(done.cubin)
    (folder / "kernels.ptx").write_text(done.ptx)


def launch_all(folder: Path) -> None:
    """Launches every kernel once on the GPU and checks that it ran; this is what ncu watches."""
    import cupy

    module = cupy.RawModule(path=str(folder / "kernels.cubin"))
    for case in CASES:
        x = cupy.asarray(np.arange(case.elements, dtype=np.float32) % 61)
        y = cupy.asarray(np.full(case.elements, -1, np.float32))
        module.get_function(case.name)(case.grid, case.block, (x, y, np.int32(case.n)))
        cupy.cuda.Device().synchronize()
        if (cupy.asnumpy(y) == -1).any():
            raise SystemExit(f"{case.name} left outputs unwritten")


def profile(folder: Path, ncu: str) -> Counts:
    """ncu's counts by kernel. A metric that this ncu does not know is left out."""
    metrics = dict(METRICS)
    while True:
        command = [
            ncu, "--clock-control", "none", "--csv", "--metrics", ",".join(metrics.values()),
            "--kernel-name", f"regex:^({'|'.join(case.name for case in CASES)})$",
            sys.executable, str(Path(__file__).resolve()), "--launch", str(folder),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
        (folder / "ncu.csv").write_text(done.stdout)
        (folder / "ncu.err").write_text(done.stderr)
        counts = read_csv(done.stdout, metrics)
        if counts:
            return counts
        output = done.stdout + done.stderr
        unknown = {
            name for name, metric in metrics.items() if re.search(rf"find metric[^\n]*{re.escape(metric)}", output)
        }
        if not unknown or unknown == set(metrics):
            raise SystemExit(f"ncu gave no counts (exit {done.returncode}):\n{output[-3000:]}")
        metrics = {name: metric for name, metric in metrics.items() if name not in unknown}


def read_csv(text: str, metrics: dict[str, str]) -> Counts:
    """The counts in ncu's CSV, whose table starts behind its messages."""
    names = {metric: name for name, metric in metrics.items()}
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    counts: Counts = {}
    if start is None:
        return counts
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        metric, kernel = row.get("Metric Name") or "", row.get("Kernel Name") or ""
        value = (row.get("Metric Value") or "").replace(",", "").replace("\u202f", "").strip()
        if metric in names and re.fullmatch(r"[\d.]+(e\+?\d+)?", value):
            counts.setdefault(kernel.split("(")[0].strip(), {})[names[metric]] = float(value)
    return counts


def emulate(folder: Path, arch: str) -> Counts:
    """The emulator's counts by kernel, on the same PTX and inputs."""
    import torch

    report = CompileReport(
        ok=True, arch=arch, nvrtc_version=load_nvrtc().version, cached=False, seconds=0.0,
        modules=(
            CompiledModule(cubin_path=str(folder / "kernels.cubin"), ptx_path=str(folder / "kernels.ptx")),
        ),
    )  # fmt: skip
    counts: Counts = {}
    for case in CASES:
        step = KernelStep(kernel=case.name, grid=case.grid, block=case.block, args=("in0", "out0", {"i32": case.n}))
        loaded = EmulatorBackend(arch).load(report, LaunchPlan(steps=(step,)))
        x, y = (torch.arange(case.elements, dtype=torch.float32) % 61), torch.empty(case.elements)
        result = loaded.launch({"in0": x, "out0": y}, poison=0xCB)
        if result.counters is None or result.failure is not None:
            raise SystemExit(f"{case.name}: {result.failure or result.refused}")
        counts[case.name] = dict(result.counters.kernels[case.name])
    return counts


def compare(folder: Path, *, ncu: str = "ncu", arch: str | None = None) -> dict[str, Any]:
    """Both counts of every kernel: {kernel: {counter: {"ncu": ..., "emulated": ...}}} under `kernels`."""
    arch = arch or device_arch()
    compile_kernels(arch, folder)
    return write_result(folder, arch, profile(folder, ncu))


def compare_recorded(folder: Path, arch: str) -> dict[str, Any]:
    """The same from an earlier run's `ncu.csv` and `kernels.ptx`, without a GPU."""
    return write_result(folder, arch, read_csv((folder / "ncu.csv").read_text(), METRICS))


def write_result(folder: Path, arch: str, measured: Counts) -> dict[str, Any]:
    """Puts the emulator's counts beside ncu's and writes both files."""
    emulated = emulate(folder, arch)
    kernels = {
        case.name: {
            name: {"ncu": value, "emulated": emulated[case.name][name]}
            for name, value in measured.get(case.name, {}).items()
        }
        for case in CASES
    }
    result = {"arch": arch, "nvrtc": load_nvrtc().version, "kernels": kernels}
    (folder / "ncu_counters.json").write_text(json.dumps(result, indent=1))
    (folder / "ncu_counters.md").write_text(table(result))
    return result


def device_arch() -> str:
    """Architecture of the first GPU."""
    import cupy

    return f"sm_{cupy.cuda.Device(0).compute_capability}"


def table(result: dict[str, Any]) -> str:
    """A Markdown table of both counts."""
    lines = ["| kernel | counter | ncu | emulated | equal |", "|---|---|---|---|---|"]
    for kernel, counters in result["kernels"].items():
        for name, pair in counters.items():
            same = "yes" if pair["ncu"] == pair["emulated"] else "**no**"
            lines.append(f"| {kernel} | {name} | {pair['ncu']:.0f} | {pair['emulated']:.0f} | {same} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--recorded", action="store_true", help="use the ncu.csv and kernels.ptx that lie in --out")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--arch")
    options = parser.parse_args()
    if options.launch is not None:
        launch_all(options.launch)
    elif options.out is not None and options.recorded:
        print(table(compare_recorded(options.out.resolve(), options.arch or "sm_90")))
    elif options.out is not None:
        print(table(compare(options.out.resolve(), ncu=options.ncu, arch=options.arch)))
    else:
        parser.error("--out is required")


if __name__ == "__main__":
    main()
