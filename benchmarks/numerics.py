"""Errors of honest and of degraded kernels by dtype, from which the limits of the numerical rule are chosen.

python benchmarks/numerics.py [--device cpu|cuda] [--out docs/results/numerics.md] [--json FILE]

Each operator of `numerics_cases.py` is run on every kind of input of the judge, by eager PyTorch, by right kernels that
differ in order and method, by kernels that hold something in fewer bits, and by wrong ones. The judge's own yardstick
and comparison are applied; a kernel passes where all kinds pass.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from numerics_cases import Case, Kernel, cases, in_tf32, mantissa

from warpsmith.tools.verification.compare import LIMITS, TF32_INSIDE, Comparison, compare, yardstick
from warpsmith.tools.verification.inputs import KINDS, Kind

COMPENSATED = "bfloat16 + bfloat16"
"""Sixteen bits: in reach of right kernels that sum in an unlucky order, so that errors alone do not tell it."""
LOWER = {
    torch.float32: {COMPENSATED: 15, "TF32, float16": 10, "bfloat16": 7},
    torch.float16: {"float16": 10, "bfloat16": 7, "float8": 3},
    torch.bfloat16: {"bfloat16": 7, "float8": 3},
    torch.float64: {"float32": 23},
}
"""Bits after the leading one of what a degraded kernel may hold. A dtype's own bits degrade only sums and partial
results, which right kernels hold in float32."""
OWN_BITS = {torch.float16: 10, torch.bfloat16: 7}
SEED = 20
IN_TF32 = ", eager in TF32"


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of one operator: its largest ratios over the kinds of input, and whether the judge takes it."""

    dtype: str
    case: str
    kernel: str
    group: str
    """`honest`, `wrong`, or the precision that something is held in."""
    few: bool
    """The output has one element: its error may be small by luck."""
    rms: float
    largest: float
    step_rms: float
    step_largest: float
    positive_rms: float
    """Largest rms ratio over the kinds that are not zero-mean."""
    passes: bool
    kinds: int


def drawn(case: Case, kind: Kind, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Inputs of a kind; what a problem ships is uniform here."""
    generator = torch.Generator(device=device).manual_seed(SEED)
    work = dtype if dtype is torch.float64 else torch.float32
    values = []
    for shape in case.shapes:
        flat = torch.empty(shape, device=device, dtype=work)
        filled = flat.uniform_(generator=generator) if kind.draw is None else kind.draw(flat, generator)
        values.append(filled.to(dtype))
    return values


def kernels(case: Case, dtype: torch.dtype) -> Iterator[tuple[str, str, Kernel]]:
    """Name, group and code of the kernels of an operator."""
    for name, kernel in case.honest.items():
        if dtype is not torch.float64 or name not in case.single:
            yield name, "honest", kernel
    for name, kernel in case.wrong.items():
        yield name, "wrong", kernel
    lowers = {"bfloat16": 7} if case.name.endswith(IN_TF32) else LOWER[dtype]
    for lower, bits in lowers.items():
        for name, kernel in case.cut(mantissa(bits)).items():
            if bits != OWN_BITS.get(dtype) or "accumulator" in name:
                yield name, lower, kernel


def measure(case: Case, dtype: torch.dtype, device: str) -> list[Row]:
    """All kernels of an operator in one dtype."""
    found: dict[tuple[str, str], list[tuple[Kind, Comparison]]] = {}
    inside = torch.float32 if case.name.endswith(IN_TF32) else None
    few = False
    for kind in KINDS:
        inputs = drawn(case, kind, dtype, device)
        wide = [value if dtype is torch.float64 else value.float() for value in inputs]
        plain = next(one for one in [*cases(), case] if one.name == case.name.removesuffix(IN_TF32))
        truth = plain.eager(*(value.double() for value in inputs))
        scale = replace(yardstick(truth, case.eager(*inputs)), inside=inside)
        few = truth.numel() == 1
        if not kind.judged or not scale.finite or not scale.eager_agrees:
            continue
        for name, group, kernel in kernels(case, dtype):
            result = compare(kernel(*wide).to(dtype), truth, scale, by_ratio=kind.zero_mean)
            found.setdefault((name, group), []).append((kind, result))
    return [_row(case, dtype, name, group, few, results) for (name, group), results in found.items()]


def _row(
    case: Case, dtype: torch.dtype, name: str, group: str, few: bool, results: Sequence[tuple[Kind, Comparison]]
) -> Row:
    everywhere = LIMITS[dtype].everywhere or case.name.endswith(IN_TF32)
    ratios = [one.ratios for kind, one in results if one.ratios is not None and (everywhere or kind.zero_mean)]
    other = [one.ratio for kind, one in results if one.ratio is not None and not kind.zero_mean]
    label = str(dtype).removeprefix("torch.")
    if case.name.endswith(IN_TF32):
        label += IN_TF32
    return Row(
        label, case.name.removesuffix(IN_TF32), name, group, few,
        max(one.rms for one in ratios), max(one.largest for one in ratios),
        max(one.step_rms for one in ratios), max(one.step_largest for one in ratios),
        max(other, default=0.0), all(one.problem is None for _, one in results), len(results),
    )  # fmt: skip


def report(rows: Sequence[Row], device: str) -> str:
    """The results as Markdown."""
    lines = [
        "# Errors of honest and of degraded kernels", "",
        f"Written by `benchmarks/numerics.py --device {device}` with torch {torch.__version__}, Python "
        f"{platform.python_version()}, on {_device_name(device)}; seed {SEED}. "
        "Figures are ratios to eager's error (docs/numerics.md), the largest over the kinds of input on which the "
        "ratio is judged. A kernel is accepted where every kind of input accepts it.", "",
    ]  # fmt: skip
    for dtype in dict.fromkeys(row.dtype for row in rows):
        lines += _section(dtype, [row for row in rows if row.dtype == dtype])
    return "\n".join(lines) + "\n"


def _section(dtype: str, rows: Sequence[Row]) -> list[str]:
    limits = LIMITS[getattr(torch, dtype.removesuffix(IN_TF32))]
    steps = limits.steps
    head = f"Limits: rms {limits.rms_ratio:g}, largest {limits.max_ratio:g}"
    if dtype.endswith(IN_TF32):
        head = f"Limits: rms {TF32_INSIDE:g}, largest {2 * TF32_INSIDE:g}"
    head += f"; in units in the last place rms {steps[0]:g}, largest {steps[1]:g}." if steps else "."
    lines = [f"## {dtype}", "", head, "", "| kernels | number | accepted | rms | largest | ulp rms | ulp largest |"]
    lines.append("|---|---|---|---|---|---|---|")
    for group in dict.fromkeys(row.group for row in rows):
        for few in (False, True):
            found = [row for row in rows if row.group == group and row.few == few]
            if found:
                lines.append(_summary(group + (", one output element" if few else ""), found, group == "honest"))
    lines += ["", _surprises(rows), "", "| operator | honest: largest rms ratio | degraded: least rms ratio |"]
    lines += ["|---|---|---|"]
    for case in dict.fromkeys(row.case for row in rows):
        lines.append(_operator(case, [row for row in rows if row.case == case]))
    return [*lines, ""]


def _summary(name: str, rows: Sequence[Row], honest: bool) -> str:
    """The largest figure of honest kernels, the least of others."""
    pick = max if honest else min
    figures = [pick(getattr(row, what) for row in rows) for what in ("rms", "largest", "step_rms", "step_largest")]
    texts = [f"{'<=' if honest else '>='} {figure:.3g}" if figure else "" for figure in figures]
    return f"| {name} | {len(rows)} | {sum(row.passes for row in rows)} | {' | '.join(texts)} |"


def _surprises(rows: Sequence[Row]) -> str:
    """Honest kernels refused and others accepted, by name."""
    refused = [f"{row.kernel} ({row.case})" for row in rows if row.group == "honest" and not row.passes]
    accepted = [f"{row.kernel} in {row.group} ({row.case})" for row in rows if row.group != "honest" and row.passes]
    honest = max(row.positive_rms for row in rows if row.group == "honest")
    shown = 8
    if len(accepted) > shown:
        accepted = [*accepted[:shown], f"{len(accepted) - shown} more"]
    return (
        f"Honest kernels refused: {', '.join(refused) or 'none'}. Others accepted: {', '.join(accepted) or 'none'}. "
        f"Largest rms ratio of an honest kernel on inputs that are not zero-mean: {honest:.3g}."
    )


def _operator(case: str, rows: Sequence[Row]) -> str:
    right = [row for row in rows if row.group == "honest"]
    text = ""
    if right:
        honest = max(right, key=lambda row: row.rms)
        text = f"{honest.rms:.3g} ({honest.kernel})"
    others = [row for row in rows if row.group not in ("honest", "wrong")]
    least = min(others, key=lambda row: row.rms)
    return f"| {case} | {text} | {least.rms:.3g} ({least.kernel} in {least.group}) |"


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU ({platform.machine()})"


def main() -> int:
    """Run, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows: list[Row] = []
    for dtype in LOWER:
        operators = cases()
        if dtype is torch.float32:
            operators += [in_tf32(one) for one in operators if one.name.startswith(("matmul K=512", "convolution"))]
        for case in operators:
            rows += measure(case, dtype, chosen.device)
        print(f"{dtype}: {len(rows)} kernels", file=sys.stderr)
    if chosen.json:
        chosen.json.write_text(json.dumps([{name: getattr(row, name) for name in Row.__slots__} for row in rows]))
    text = report(rows, chosen.device)
    if chosen.out:
        chosen.out.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
