"""Counts instructions and errors of mathematical functions: CUDA's own, and what kernels call (device_math.cu).

usage: python benchmarks/device_math.py --out docs/results/device_math.md [--arch sm_90] [--nvdisasm PATH] [--gpu]

Instructions are those of the compiled cubin for one of eight elements that a thread holds, less a copy's; code behind
the kernel's end (slow paths) is told apart. Errors are of the same code against float64 over all magnitudes: on the
emulator, where approximate instructions are rounded from float64, or with `--gpu` on a GPU. Needs NVIDIA's `nvdisasm`.
Exit code 1 where the cost model's figure for a function is off by more than 1.5.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from warpsmith.kernels import codegen
from warpsmith.kernels.lowering.device_math import COSTS
from warpsmith.kernels.occupancy import WARP
from warpsmith.kernels.records import Candidate, CompileReport, Counters, KernelStep, LaunchPlan
from warpsmith.sandbox.backend import Backend, LaunchResult
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import compile_candidate

Exact = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ELEMENTS, BLOCK, POINTS = 8, 128, 1 << 17
_BRANCHES = ("BRA", "BRX", "CALL", "BSSY", "BSYNC", "RET")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


@dataclass(frozen=True, slots=True)
class Form:
    """One function: CUDA's text for it, ours where there is one, and its value in float64."""

    name: str
    plain: str
    ours: str | None
    exact: Exact
    cost: str | None = None
    """The name of its cost, where the form is one function."""
    floor: float = 2.0**-126
    """Smaller results are left out: there CUDA's own steps have lost all digits, to denormals or to a sum with one."""


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _cdf2(x: torch.Tensor) -> torch.Tensor:
    return torch.special.erfc(-x * 0.70710678118654752)


SUM = 2.0**-23
"""A unit in the last place of one."""
_PLAIN_SOFTPLUS = "(x > 20.0f ? x : log1pf(expf(x)))"
_INNER = "0.7978846f * (x + 0.044715f * x * x * x)"
FORMS = (
    Form("x / y", "x / y", "math::divide(x, y)", lambda x, y: x / y, "math::divide"),
    Form("x / 3", "x / 3.0f", "math::divide_by(x, 3.0f)", lambda x, y: x / 3, "math::divide_by"),
    Form("1 / x", "1.0f / x", "math::reciprocal(x)", lambda x, y: 1 / x, "math::reciprocal"),
    Form("sqrt", "sqrtf(x)", "math::sqrt(x)", lambda x, y: torch.sqrt(x), "math::sqrt"),
    Form("1 / sqrt(x)", "1.0f / sqrtf(x)", "rsqrtf(x)", lambda x, y: torch.rsqrt(x), "rsqrtf"),
    Form("sigmoid", "1.0f / (1.0f + expf(-x))", "math::sigmoid(x)", lambda x, y: torch.sigmoid(x), "math::sigmoid"),
    Form("silu", "x / (1.0f + expf(-x))", "x * math::sigmoid(x)", lambda x, y: x * torch.sigmoid(x), floor=1e-30),
    Form("softplus", _PLAIN_SOFTPLUS, "math::softplus(x)", lambda x, y: _softplus(x), "math::softplus"),
    Form("tanh(softplus)", f"tanhf({_PLAIN_SOFTPLUS})", "math::tanh_softplus(x)",
         lambda x, y: torch.tanh(_softplus(x)), "math::tanh_softplus"),
    Form("mish", f"x * tanhf({_PLAIN_SOFTPLUS})", "x * math::tanh_softplus(x)",
         lambda x, y: x * torch.tanh(_softplus(x)), floor=1e-30),
    Form("expm1", "expm1f(x)", "math::expm1(x)", lambda x, y: torch.expm1(x), "math::expm1"),
    Form("elu", "expm1f(x); p[j] = x > 0.0f ? x : p[j]", "math::expm1(x); p[j] = x > 0.0f ? x : p[j]",
         lambda x, y: torch.where(x > 0, x, torch.expm1(x))),
    Form("1 + tanh", "1.0f + tanhf(x)", "math::one_plus_tanh(x)", lambda x, y: 2 * torch.sigmoid(2 * x),
         "math::one_plus_tanh", SUM),
    Form("gelu, tanh form", f"0.5f * x * (1.0f + tanhf({_INNER}))", f"0.5f * x * math::one_plus_tanh({_INNER})",
         lambda x, y: x * torch.sigmoid(2 * 0.79788456 * (x + 0.044715 * x**3)), floor=SUM),
    Form("1 + erf", "1.0f + erff(x)", "math::one_plus_erf(x)", lambda x, y: torch.special.erfc(-x),
         "math::one_plus_erf", SUM),
    Form("gelu", "0.5f * x * (1.0f + erff(x * 0.70710678f))", "0.5f * x * math::one_plus_erf(x * 0.70710678f)",
         lambda x, y: 0.5 * x * _cdf2(x), floor=SUM),
    Form("exp", "expf(x)", None, lambda x, y: torch.exp(x), "expf"),
    Form("exp2", "exp2f(x)", None, lambda x, y: torch.exp2(x), "exp2f"),
    Form("log", "logf(x)", None, lambda x, y: torch.log(x), "logf"),
    Form("log1p", "log1pf(x)", None, lambda x, y: torch.log1p(x), "log1pf"),
    Form("tanh", "tanhf(x)", None, lambda x, y: torch.tanh(x), "tanhf"),
    Form("erf", "erff(x)", None, lambda x, y: torch.erf(x), "erff"),
    Form("pow(x, 1.7)", "powf(x, 1.7f)", None, lambda x, y: torch.pow(x, 1.7), "powf"),
)  # fmt: skip


OTHERS = {name: f"{name}(x)" for name in (
    "expm1f", "log2f", "log10f", "sinf", "cosf", "tanf", "asinf", "acosf", "atanf", "sinhf", "coshf", "asinhf",
    "atanhf", "erfcf", "erfinvf", "lgammaf", "sqrtf",
)} | {
    "acoshf": "acoshf(y)", "/": "x / y", "atan2f": "atan2f(x, y)", "hypotf": "hypotf(x, y)", "fmodf": "fmodf(x, y)",
}  # fmt: skip
"""By name in the cost table."""
_EXPANDED = 2.0
"""PTX instructions up to which a function counts as one that the assembler expands."""


@dataclass(frozen=True, slots=True)
class Count:
    """Instructions of one element: on the way through, of them special functions and branches; slow paths in all."""

    instructions: float
    special: float
    branches: float
    aside: int

    def text(self) -> str:
        """Cells of the table."""
        slow = f"{self.branches:.0f}, {self.aside} aside" if self.aside else f"{self.branches:.0f}"
        return f"{self.instructions:.1f} | {self.special:.0f} | {slow}"


def kernel(name: str, text: str) -> str:
    """A kernel that computes `text` of x and y for ELEMENTS elements of each thread."""
    return f"""extern "C" __global__ void {name}(
    const float4* __restrict__ a, const float4* __restrict__ b, float4* o) {{
  const int i = (blockIdx.x * {BLOCK} + threadIdx.x) * {ELEMENTS // 4};
  float p[{ELEMENTS}], q[{ELEMENTS}];
#pragma unroll
  for (int j = 0; j < {ELEMENTS // 4}; ++j) {{ ((float4*)p)[j] = a[i + j]; ((float4*)q)[j] = b[i + j]; }}
#pragma unroll
  for (int j = 0; j < {ELEMENTS}; ++j) {{ const float x = p[j], y = q[j]; p[j] = {text}; }}
#pragma unroll
  for (int j = 0; j < {ELEMENTS // 4}; ++j) o[i + j] = ((float4*)p)[j];
}}"""


def program(texts: Sequence[str]) -> Candidate:
    """One kernel a text, `k0`, `k1`, ..., in one source."""
    names = [f"k{number}" for number in range(len(texts))]
    source = "\n".join([codegen.prelude("math_units", "math"), *map(kernel, names, texts)])
    steps = tuple(
        KernelStep(kernel=name, grid=(POINTS // BLOCK // ELEMENTS, 1, 1), block=(BLOCK, 1, 1), args=("in0", "in1", out))
        for name, out in zip(names, (f"out{number}" for number in range(len(texts))), strict=True)
    )
    return Candidate(source=source, plan=LaunchPlan(steps=steps))


def counts(report: CompileReport, disassembler: str) -> dict[str, Count]:
    """By kernel, from the disassembled cubin; not yet less a copy's."""
    (module,) = report.modules
    command = [disassembler, "-c", module.cubin_path]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listing.splitlines():
        if section := re.match(r"\.text\.(\w+):", line):
            current = found.setdefault(section[1], [])
        elif opcode := _INSTRUCTION.search(line):
            current.append(opcode[1])
    return {name: _count([opcode for opcode in opcodes if opcode != "NOP"]) for name, opcodes in found.items()}


def _count(opcodes: list[str]) -> Count:
    end = max(place for place, opcode in enumerate(opcodes) if opcode.startswith("EXIT")) + 1
    through = [opcode.split(".")[0] for opcode in opcodes[:end]]
    branches = sum(opcode in _BRANCHES for opcode in through)
    # The last one is the trap of an endless branch that ends every kernel.
    return Count(len(through), through.count("MUFU"), branches, len(opcodes) - end - 1)


def of_element(count: Count, copy: Count) -> Count:
    """One element's share of what a kernel has more than a copy."""
    return Count(
        (count.instructions - copy.instructions) / ELEMENTS, count.special / ELEMENTS, count.branches / ELEMENTS,
        count.aside,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """Rows, and what the cost model has wrong."""

    lines: list[str]
    wrong: list[str]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """x: all magnitudes of both signs, and half of all within what activations see; y: another order of them."""
    wide = torch.arange(0, 1 << 32, (1 << 32) // (POINTS // 2), dtype=torch.int64)
    wide += torch.randint(0, (1 << 32) // len(wide), wide.shape, generator=torch.Generator().manual_seed(2))
    bits = torch.where(wide >= 1 << 31, wide - (1 << 32), wide).to(torch.int32)
    near = 12 * torch.randn(POINTS // 2, generator=torch.Generator().manual_seed(0))
    x = torch.cat((bits.view(torch.float32), near))
    return x, x[torch.randperm(POINTS, generator=torch.Generator().manual_seed(1))]


def defined() -> tuple[torch.Tensor, torch.Tensor]:
    """x within (-1, 1), y within (0.5, 3): where every function is defined."""
    drawn = torch.rand(2, POINTS, generator=torch.Generator().manual_seed(3))
    return 2 * drawn[0] - 1, 0.5 + 2.5 * drawn[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of one source with a kernel for each text."""

    texts: tuple[str, ...]
    counted: dict[str, Count]
    results: tuple[torch.Tensor, ...]
    counters: Counters | None
    """Of the emulator."""

    def count(self, text: str) -> Count:
        """Of one element, less what a copy needs."""
        copy = self.counted["k0"]
        if "y" in text:  # a sum reads both as well, and adds once an element
            both = self.counted["k1"]
            copy = Count(both.instructions - ELEMENTS, both.special, both.branches, both.aside)
        return of_element(self.counted[f"k{self.texts.index(text)}"], copy)

    def result(self, text: str) -> torch.Tensor:
        """(POINTS,): what the kernel made of the inputs."""
        return self.results[self.texts.index(text)]

    def executed(self, text: str) -> float:
        """PTX instructions of one element that the emulator has run, less a copy's."""
        assert self.counters is not None
        base = "k1" if "y" in text else "k0"
        runs = [self.counters.kernels[name]["warp_instructions"] for name in (f"k{self.texts.index(text)}", base)]
        return (runs[0] - runs[1]) * WARP / POINTS


def ran(
    candidate: Candidate, inputs: tuple[torch.Tensor, torch.Tensor], arch: str, backend: Backend, folder: Path
) -> tuple[CompileReport, LaunchResult, tuple[torch.Tensor, ...]]:
    """Compiles and runs; the results on the CPU, one for each kernel."""
    report = compile_candidate(candidate, arch, cache_dir=folder)
    if not report.ok:
        raise SystemExit(f"does not compile: {report.failure}")
    place = backend.torch_device
    results = {f"out{number}": torch.zeros(POINTS, device=place) for number in range(len(candidate.plan.steps))}
    given = {"in0": inputs[0].to(place), "in1": inputs[1].to(place)}
    launched = backend.load(report, candidate.plan).launch(given | results, poison=0)
    if launched.failure is not None or launched.refused is not None:
        raise SystemExit(f"the kernels did not run: {launched.failure or launched.refused}")
    return report, launched, tuple(result.cpu() for result in results.values())


def largest_errors(arch: str, backend: Backend) -> dict[str, float]:
    """Of each form with a function of ours, the function's largest error in units in the last place."""
    own = {form: form.ours for form in FORMS if form.ours is not None}
    with tempfile.TemporaryDirectory() as folder:
        _, _, results = ran(program(list(own.values())), inputs(), arch, backend, Path(folder))
    x, y = (one.double() for one in inputs())
    return {form.name: largest(result, form.exact(x, y), form.floor) for form, result in zip(own, results, strict=True)}


def measured(
    texts: Sequence[str], inputs: tuple[torch.Tensor, torch.Tensor], arch: str, disassembler: str, *, gpu: bool
) -> Measured:
    """Compiles, counts and runs."""
    every = ("x", "x + y", *texts)
    with tempfile.TemporaryDirectory() as folder:
        report, launched, found = ran(program(every), inputs, arch, _backend(gpu=gpu), Path(folder))
        return Measured(every, counts(report, disassembler), found, launched.counters)


def _backend(*, gpu: bool) -> Backend:
    if not gpu:
        return EmulatorBackend()
    from warpsmith.sandbox.cuda.backend import CudaBackend

    return CudaBackend()


def largest(found: torch.Tensor, exact: torch.Tensor, floor: float) -> float:
    """Largest error in units in the last place, of results from `floor` on."""
    normal = (exact.abs() >= floor) & (exact.abs() < 3.4e38)
    unit = torch.exp2(torch.floor(torch.log2(exact[normal].abs())) - 23)
    return float(((found[normal].double() - exact[normal]).abs() / unit).max())


def forms(arch: str, disassembler: str, *, gpu: bool) -> Table:
    """Ours beside CUDA's own."""
    texts = [text for form in FORMS for text in (form.plain, form.ours) if text is not None]
    found = measured(texts, inputs(), arch, disassembler, gpu=gpu)
    x, y = (one.double() for one in inputs())
    lines, wrong = [], []
    for form in FORMS:
        exact, cells = form.exact(x, y), []
        for text in (form.plain, form.ours):
            if text is None:
                cells.append("| | |")
                continue
            error = largest(found.result(text), exact, form.floor)
            cells.append(f"{found.count(text).text()} | {_units(error)}")
        if form.cost is None:
            cells.append("")
        else:
            count = found.count(form.ours or form.plain)
            cells.append(f"{COSTS[form.cost].instructions}, {COSTS[form.cost].special}")
            wrong += _mispriced(form.cost, count.instructions, count)
        lines.append(f"| {form.name} | {' | '.join(cells)} |")
    return Table(lines, wrong)


def others(arch: str, disassembler: str) -> Table:
    """CUDA's functions that are called as they are; with branches, what the emulator has executed may be less."""
    found = measured(list(OTHERS.values()), defined(), arch, disassembler, gpu=False)
    lines, wrong = [], []
    for name, text in OTHERS.items():
        count, executed = found.count(text), found.executed(text)
        taken = min(count.instructions, executed) if executed > _EXPANDED else count.instructions
        lines.append(
            f"| {text} | {count.text()} | {executed:.1f} | {COSTS[name].instructions}, {COSTS[name].special} |"
        )
        wrong += _mispriced(name, taken, count)
    return Table(lines, wrong)


def _mispriced(name: str, instructions: float, count: Count) -> list[str]:
    priced = COSTS[name]
    if abs(instructions - priced.instructions) <= 1.5 and round(count.special) == priced.special:
        return []
    return [f"{name}: {instructions:.1f} instructions, {count.special:.0f} special; the cost model says {priced}"]


_NOTES = (
    "# Functions on the device: instructions and errors",
    "",
    "Written by `benchmarks/device_math.py`. Instructions of an {arch} cubin for each element, of them special",
    "functions (MUFU) and branches; *aside* are instructions of slow paths behind the kernel's end. Errors: the",
    "largest in units in the last place of the result, over {points:,} arguments (all magnitudes, and normal ones of",
    "standard deviation 12), on {where}. Of sums with 1",
    "and of gelu those results count that are 2^-23 at least, of silu and mish 1e-30: below that CUDA's own steps",
    "leave no digits. The last column is what the cost model takes (instructions, MUFU).",
    "",
    "| function | CUDA's own: instructions | MUFU | branches | largest error | "
    "ours: instructions | MUFU | branches | largest error | cost model |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


_REST = (
    "",
    "Other functions of CUDA, on arguments in (-1, 1) and (0.5, 3). Slow paths for large arguments lie within some of",
    "them: the PTX instructions that the emulator has executed tell what is left out. A division or a root is one of",
    "them, which the assembler expands. The cost model takes the smaller count.",
    "",
    "| function | instructions | MUFU | branches | PTX executed | cost model |",
    "|---|---|---|---|---|---|",
)


def _units(error: float) -> str:
    return f"{error:.1f}" if error < 100 else f"{error:.1e}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm"))
    parser.add_argument("--gpu", action="store_true", help="errors on the GPU instead of the emulator")
    given = parser.parse_args()
    if given.nvdisasm is None:
        raise SystemExit("nvdisasm is not on the path: name it with --nvdisasm (it is part of the CUDA toolkit)")
    ours = forms(given.arch, given.nvdisasm, gpu=given.gpu)
    rest = others(given.arch, given.nvdisasm)
    where = "a GPU" if given.gpu else "the emulator, which rounds approximate instructions from float64"
    head = [line.format(arch=given.arch, where=where, points=POINTS) for line in _NOTES]
    text = "\n".join([*head, *ours.lines, *_REST, *rest.lines])
    if given.out:
        given.out.write_text(text + "\n")
    print(text)
    for line in (*ours.wrong, *rest.wrong):
        print(line, file=sys.stderr)
    raise SystemExit(1 if ours.wrong or rest.wrong else 0)


if __name__ == "__main__":
    main()
