"""Times a baseline against itself, and a kernel against one that does 2 % more work: does the protocol tell the truth?

usage: python benchmarks/null_tests.py [--times 20] [--out FOLDER]     (needs an NVIDIA GPU)

Writes null_tests.json and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan, Speedup
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.sandbox.cuda.facts import identity
from warpsmith.tools.compile import Compiler
from warpsmith.tools.measurement.contenders import Contender, candidate_contender, module_contenders, stage_for
from warpsmith.tools.measurement.sampling import Sampler
from warpsmith.tools.measurement.statistics import half_width, speedup
from warpsmith.tools.verification.session import Session

PROBLEM = """
import torch
import torch.nn as nn
rows, dim = 4096, 4096
class Model(nn.Module):
    def forward(self, x):
        return torch.{name}(x{more})
def get_inputs():
    return [torch.rand(rows, dim)]
def get_init_inputs():
    return []
"""
CASES = {
    "softmax, 64 MB": ("softmax", ", dim=1", {}),
    "softmax, 1 MB (graph)": ("softmax", ", dim=1", {"rows": "64"}),
    "relu, 256 MB": ("relu", "", {"rows": "16384"}),
    "sum, 16 MB": ("sum", ", dim=0", {"rows": "1024"}),
}
WORK = """
extern "C" __global__ void relu(const float* __restrict__ x, float* __restrict__ y, long long n, long long again) {
    long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    for (long long i = at; i < n; i += step) y[i] = fmaxf(x[i], 0.0f);
    for (long long i = at; i < again; i += step) y[i] = fmaxf(x[i], 0.0f);
}
"""
BUDGET_S, MIN_PAIRS, MAX_PAIRS = 3.0, 30, 400


def session_of(name: str, folder: Path) -> Session:
    """A session for one of the cases."""
    function, more, overrides = CASES[name]
    path = folder / f"{abs(hash(name))}.py"
    path.write_text(PROBLEM.format(name=function, more=more))
    return Session(load_problem(str(path), overrides=overrides), CudaBackend(), 16 << 30)


def compared(session: Session, pair: list[Contender], *, budget_s: float, within: float) -> dict[str, object]:
    """Rounds until the interval is narrow enough or the budget ends, as the judge does it."""
    inputs = session.input_set("shipped")
    assert inputs is not None
    backend = session.cuda()
    began = time.perf_counter()
    sampler = Sampler(backend, pair, stage_for(session, inputs, short=False), health=backend.health)
    failure = sampler.warm_up(0.05, 0.25)
    probe = sampler.probe()
    if isinstance(probe, float) and probe < 20:
        sampler.use_graphs(stage_for(session, inputs, short=True))
    deadline = began + budget_s
    first, second = (sampler.samples[one.name] for one in pair)
    found: Speedup | None = None
    while failure is None and time.perf_counter() < deadline and len(first) < MAX_PAIRS:
        failure = sampler.round()
        if len(first) >= MIN_PAIRS:
            found = speedup(second, first)
            if half_width(found) < within:
                break
    assert failure is None, failure
    assert found is not None
    return {
        "value": found.value, "low": found.low, "high": found.high, "pairs": len(first),
        "seconds": time.perf_counter() - began, "method": sampler.method, "dropped": len(sampler.dropped),
    }  # fmt: skip


def null_tests(times: int, folder: Path) -> list[dict[str, object]]:
    """A module's eager form against itself."""
    rows = []
    names = list(CASES)
    sessions = {name: session_of(name, folder) for name in names}
    for turn in range(times):
        name = names[turn % len(names)]
        inputs = sessions[name].input_set("shipped")
        assert inputs is not None
        (eager,), _ = module_contenders(sessions[name], inputs, ["eager"])
        pair = [replace(eager, name="first"), replace(eager, name="second")]
        with sessions[name].alone():
            row = compared(sessions[name], pair, budget_s=BUDGET_S, within=0.01)
        rows.append({"case": name, **row})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def slower(times: int, folder: Path) -> list[dict[str, object]]:
    """The same kernel with 2 % of its work done twice: `value` is how much slower it is found to be."""
    session = session_of("relu, 256 MB", folder)
    inputs = session.input_set("shipped")
    assert inputs is not None
    count = inputs.inputs[0].numel()
    rows = []
    with Compiler(identity().arch, cache_dir=folder / "cache", jobs=1) as compiler:
        for _ in range(times):
            pair = []
            for name, again in (("plain", 0), ("slower", round(0.02 * count))):
                args = ("in0", "out0", {"i64": count}, {"i64": again})
                step = KernelStep(kernel="relu", grid=(2112, 1, 1), block=(256, 1, 1), args=args)
                candidate = Candidate(source=WORK, plan=LaunchPlan(steps=(step,)))
                loaded = session.cuda().load(compiler.compile(candidate), candidate.plan)
                pair.append(candidate_contender(name, loaded, inputs))
            with session.alone():
                rows.append(compared(session, pair, budget_s=BUDGET_S, within=0.005))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Both experiments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path())
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nulls = null_tests(arguments.times, Path(folder))
        slow = slower(arguments.times, Path(folder))
    document = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "null": nulls, "slower": slow}
    (arguments.out / "null_tests.json").write_text(json.dumps(document, indent=1))
    even = sum(0.99 <= float(str(row["value"])) <= 1.01 for row in nulls)
    apart = sum(float(str(row["low"])) > 1 and float(str(row["seconds"])) <= BUDGET_S for row in slow)
    print(f"\n{document['device']}, torch {document['torch']}: {even} of {len(nulls)} null tests within 1.00 +- 0.01;")
    print(f"a kernel with 2 % more work told apart within {BUDGET_S:g} s in {apart} of {len(slow)}.\n")
    print("| case | ratio (95 % interval) | pairs | seconds | method |\n|---|---|---|---|---|")
    for row in [*nulls, *({"case": "2 % more work, 256 MB", **row} for row in slow)]:
        print(
            f"| {row['case']} | {row['value']:.4f} ({row['low']:.4f} to {row['high']:.4f}) | {row['pairs']} "
            f"| {row['seconds']:.2f} | {row['method']} |"
        )


if __name__ == "__main__":
    main()
