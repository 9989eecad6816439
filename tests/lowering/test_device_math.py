"""The functions of `device_math.cu`: over all magnitudes against float64, at the edges against eager, and uses."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache

import numpy as np
import pytest
import torch
from emulator.kit import aligned, cuda, good, run
from lowering import functions
from lowering.graphs import graph_of
from lowering.sequential import DEVICE_MATH, device_program
from support.scripts import benchmark

from warpsmith.kernels import codegen
from warpsmith.kernels.lowering.device_math import COSTS, plain
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.region import Line, Region
from warpsmith.sandbox.emulator.backend import EmulatorBackend

SWEEP = r"""
#include <stdint.h>
static float of_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static double units(float y, double exact) {
    if (isnan(exact) || isnan(y)) return isnan(exact) && isnan(y) ? 0 : INFINITY;
    float near = (float)exact;
    if (isinf(near) || isinf(y)) return y == near ? 0 : INFINITY;
    return fabs((double)y - exact) / ldexp(1, exact == 0 || ilogb(exact) < -126 ? -149 : ilogb(exact) - 23);
}
#define FUNCTION(name, exact_text, allowed) \
    extern "C" double sweep_##name(uint32_t step, double floor_, float* where) { \
        double worst = 0; \
        for (uint64_t bits = 0; bits < (1ull << 32); bits += step) { \
            const float x = of_bits((uint32_t)bits); \
            const double d = (double)x, exact = exact_text; \
            if (!(allowed)) continue; \
            const float y = math::name(x); \
            const double off = fabs(exact) < floor_ ? fabs((double)y - exact) / floor_ * 8388608 : units(y, exact); \
            if (off > worst) { worst = off; *where = x; } \
        } \
        return worst; \
    }
static double softplus64(double x) { return x > 40 ? x : log1p(exp(x)); }
FUNCTION(sigmoid, 1 / (1 + exp(-d)), x > -88.7f || x != x)
FUNCTION(softplus, softplus64(d), true)
FUNCTION(tanh_softplus, tanh(softplus64(d)), true)
FUNCTION(expm1, expm1(d), true)
FUNCTION(one_plus_tanh, 2 / (1 + exp(-2 * d)), true)
FUNCTION(one_plus_erf, erfc(-d), true)
extern "C" void offsets(int of_exp, int of_exp2, int of_reciprocal) {
    off_exp = of_exp; off_exp2 = of_exp2; off_reciprocal = of_reciprocal;
}
extern "C" double sweep_divide_by(uint32_t step, float* where) {
    double worst = 0;
    const float divisors[] = {3, -6, 7, 9, 48, 0.1f, 1e-30f, 1.9e30f, 1000, 3.1415927f};
    for (float y : divisors)
        for (uint64_t bits = 0; bits < (1ull << 32); bits += step) {
            const float x = of_bits((uint32_t)bits);
            const double exact = (double)x / (double)y;
            double off = units(math::divide_by(x, y), exact);
            if (fabs(exact) < 1e-30) off /= 2;  // a unit of denormals: the small part of the product is rounded as one
            if (off > worst) { worst = off; *where = x; }
        }
    return worst;
}
"""
STEP = 2039
"""Every so many float32 numbers: two million of each function, from all magnitudes."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("math")
    source, library = folder / "math.cpp", folder / "math.so"
    source.write_text(DEVICE_MATH + SWEEP)
    command = ["g++", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))


def worst(swept: ctypes.CDLL, function: str, floor: float = 0.0) -> tuple[float, float]:
    """The largest error in units in the last place, of results below `floor` in 2^-23 of it, and where."""
    sweep, where = getattr(swept, f"sweep_{function}"), ctypes.c_float()
    sweep.restype = ctypes.c_double
    found = sweep(STEP, ctypes.c_double(floor), ctypes.byref(where))
    return found, where.value


@pytest.mark.parametrize("off", [(0, 0, 0), (1, 2, 1), (1, -2, -1), (-1, 2, -1), (-1, -2, 1)])
@pytest.mark.parametrize("function", ["sigmoid", "softplus", "tanh_softplus", "expm1"])
def test_errors_stay_within_a_few_units(swept: ctypes.CDLL, function: str, off: tuple[int, int, int]) -> None:
    """Also where exponentials and reciprocals are off by as much as CUDA's documentation allows."""
    swept.offsets(*off)
    found, where = worst(swept, function)
    assert found <= (4.0 if off == (0, 0, 0) else 7.0), where


@pytest.mark.parametrize("off", [(0, 0, 0), (0, 2, 1), (0, -2, -1), (0, 2, -1), (0, -2, 1)])
def test_sums_with_one_are_as_exact_as_a_sum(swept: ctypes.CDLL, off: tuple[int, int, int]) -> None:
    """1 + erf and 1 + tanh: at most a unit of 1; what is left of it for negative arguments keeps digits that the sum of
    one and a rounded function has lost."""
    swept.offsets(*off)
    for function, digits in (("one_plus_tanh", 30.0), ("one_plus_erf", 500.0)):
        found, where = worst(swept, function, floor=1.0)
        assert found <= (1.6 if off == (0, 0, 0) else 3.5), (function, where)
        found, where = worst(swept, function, floor=2e-8)
        assert found <= digits, (function, where)


def test_a_constant_divides_as_exactly_as_a_division(swept: ctypes.CDLL) -> None:
    where = ctypes.c_float()
    swept.sweep_divide_by.restype = ctypes.c_double
    found = swept.sweep_divide_by(16 * STEP, ctypes.byref(where))
    assert 0.49 < found < 0.5001, where.value


EDGES = [
    0.0,
    1e-45,
    1e-40,
    1.1e-38,
    1e-30,
    1e-20,
    1e-8,
    1e-4,
    0.01,
    0.3,
    0.4999999,
    0.5,
    0.5000001,
    0.6,
    1.0,
    1.5,
    3.0,
    3.9,
]
EDGES += [
    4.1,
    5.0,
    8.9,
    9.1,
    11.9,
    12.1,
    16.9,
    17.1,
    19.99,
    20.01,
    44.5,
    63.9,
    87.0,
    87.4,
    88.1,
    88.6,
    88.8,
    89.5,
    103.0,
    104.5,
]
EDGES += [127.0, 129.0, 500.0, 1e10, 1e19, 5e19, 1e30, 3e38, float("inf"), float("nan")]
"""Both signs are tried: denormals, thresholds of eager's and of our formulas, where exponentials overflow or vanish."""


@cache
def lowered(function: str, *shapes: str) -> Region:
    """The region of a function of functions.py."""
    region = lower(graph_of(function, *shapes))
    assert isinstance(region, Region)
    return region


def values_of(function: str, *inputs: torch.Tensor) -> tuple[Region, list[torch.Tensor]]:
    """A function of functions.py as one kernel on the emulator."""
    region = lowered(function, *(str(len(one)) for one in inputs))
    text = codegen.prelude("math_units", "math") + "\n" + device_program(region, "k")
    given = [aligned(one.numpy(), np.float32) for one in inputs]
    results = [aligned(np.zeros(len(inputs[0])), np.float32) for _ in region.stores]
    blocks = (-(-len(inputs[0]) // 128),)
    good(run(cuda(text), "k", blocks, (128,), [*given, *results], outs=range(len(given), len(given) + len(results))))
    return region, [torch.from_numpy(result.copy()) for result in results]


def test_edges_are_eagers() -> None:
    """NaN, infinities, signs of zeros and all values, as far as float32 carries them."""
    x = torch.tensor([sign * edge for edge in EDGES for sign in (1.0, -1.0)])
    _, found = values_of("composed_activations", x)
    for number, (got, eager, exact) in enumerate(
        zip(found, functions.composed_activations(x), functions.composed_activations(x.double()), strict=True)
    ):
        assert torch.equal(got.isnan(), eager.isnan()), (number, x[got.isnan() != eager.isnan()])
        assert torch.equal(got.isinf(), eager.isinf()), (number, x[got.isinf() != eager.isinf()])
        zeros = (eager == 0) & (got == 0)
        assert torch.equal(got.signbit()[zeros], eager.signbit()[zeros]), (number, x[zeros])
        finite = eager.isfinite()
        error, own = (got - exact).abs()[finite], (eager - exact).abs()[finite]
        cancelled = 2e-16 * x.abs()[finite].clamp(max=20)  # what float64 loses of 1 + tanh and 1 + erf
        bound = torch.maximum(4 * own, 8e-7 * exact.abs()[finite]) + 1.2e-38 + cancelled
        assert bool((error <= bound).all()), (number, x[finite][error > bound], got[finite][error > bound])


def test_errors_of_the_compiled_functions() -> None:
    """As the script of docs/results/device_math.md finds them, which a GPU repeats (tests/gpu)."""
    script = benchmark("device_math")
    found = script.largest_errors("sm_90", EmulatorBackend())
    floors = {form.name: form.floor for form in script.FORMS}
    assert {"x / y", "mish", "gelu", "1 / sqrt(x)"} <= set(found)
    for name, error in found.items():
        assert error <= (500.0 if floors[name] == script.SUM else 4.0), (name, error)


@pytest.mark.parametrize(
    ("function", "name", "count"),
    [
        ("sigmoid_twice", "math::sigmoid", 1),
        ("sigmoid_twice", "expf", 1),
        ("composed_activations", "math::tanh_softplus", 1),
        ("composed_activations", "math::sigmoid", 1),
        ("composed_activations", "math::one_plus_tanh", 1),
        ("composed_activations", "math::one_plus_erf", 1),
        ("composed_activations", "tanhf", 0),
        ("composed_activations", "log1pf", 0),
        ("composed_activations", "erff", 0),
        ("composed_activations", "math::reciprocal", 1),
        ("composed_activations", "rsqrtf", 1),
        ("quotient_of_sign", "math::divide", 1),
    ],
)
def test_forms_are_recognised_and_shared(function: str, name: str, count: int) -> None:
    region = lowered(function, *["8"] * (2 if function.startswith("quotient") else 1))
    assert sum(f"{name}(" in line.text for line in region.post) == count


def test_rounded_quotients_are_eagers() -> None:
    """Whole quotients come out whole before `floor`; without the division's exact form some do not."""
    y = torch.arange(1.0, 129.0)
    x = y * torch.arange(1.0, 129.0).flip(0)
    region, (floored, rounded) = values_of("quotient_rounded", x, y)
    assert [line.text for line in region.post if " / " in line.text] == ["x0 / x1", "x0 / 3.0f"]
    assert torch.equal(floored, torch.floor(x / y))
    assert torch.equal(rounded, torch.round(x / 3.0))


def test_a_plan_shows_functions_that_any_kernel_has() -> None:
    assert plain("math::divide(v0, (-2.5f))") == "v0 / (-2.5f)"
    assert plain("fmaxf(x0, v1)") == "fmaxf(x0, v1)"
    region = lowered("composed_activations", "8")
    assert not any("math::" in plain(line.text) for line in region.post)
    assert all(line.text.split("(")[0] in COSTS for line in region.post if line.text.startswith("math::"))


def test_costs_follow_the_functions() -> None:
    """A line's instructions are those of its functions; of plain arithmetic one an operation."""
    region = lowered("composed_activations", "8")
    of = {line.text.split("(")[0]: line for line in region.post}
    assert (of["math::tanh_softplus"].instructions, of["math::tanh_softplus"].special) == (14, 2)
    assert [line.instructions for line in region.post if line.text == "x0 * 0.5f"] == [1]
    assert min(line.instructions for line in region.post) == 1


def test_only_kernels_that_call_the_functions_hold_them() -> None:
    def lines(text: str) -> tuple[Line, ...]:
        return (Line("v0", "float", text, "full", ("x0",)),)

    assert "namespace math" in codegen.prelude("memory", lines=lines("math::sigmoid(x0)"))
    assert "namespace math" not in codegen.prelude("memory", lines=lines("expf(x0)"))
