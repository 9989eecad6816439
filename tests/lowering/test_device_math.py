"""The functions of `device_math.cu` against float64: over all magnitudes, at the edges, and where forms are recognised."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
from lowering.graphs import graph_of
from lowering.sequential import DEVICE_MATH

from warpsmith.kernels.lowering.device_math import plain
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.region import Region

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
extern "C" void offsets(int exp_, int exp2_, int reciprocal_) { off_exp = exp_; off_exp2 = exp2_; off_reciprocal = reciprocal_; }
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
