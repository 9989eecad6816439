"""The operator table, entry by entry, against torch: special values, all types, numbers as operands."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lowering.graphs import Recorder, Traced
from lowering.sequential import build, call, device_program, program

from warpsmith.kernels import codegen, decompose
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.lowering.contraction import MATMULS
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.lowering.ops import POINTWISE
from warpsmith.kernels.lowering.reductions import REDUCTIONS
from warpsmith.kernels.lowering.values import literal
from warpsmith.kernels.lowering.views import VIEWS
from warpsmith.kernels.opgraph import NodeRef
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Region
from warpsmith.tools.compile import compile_candidate

NAN, INF = float("nan"), float("inf")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    1e-8,
    -1e-8,
    20.0,
    -20.0,
    90.0,
    -110.0,
    1e30,
    INF,
    -INF,
    NAN,
]
PAIRS = len(SPECIAL) ** 2
REFUSED = {"digamma"}
"""Primitives for which CUDA has no function."""

Build = Callable[[Recorder, NodeRef, NodeRef], NodeRef]
UNARY = """
    abs neg sign reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
    sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid relu floor ceil round trunc
    logical_not isnan isinf
"""
BINARY = """
    add sub mul div atan2 minimum maximum fmod remainder hypot copysign eq ne lt le gt ge logical_and
    logical_or logical_xor pow
"""


def whole(r: Recorder, x: NodeRef) -> NodeRef:
    """Small integers out of floats that may be infinite or NaN."""
    return r.op("to_copy", r.op("clamp", r.op("where", r.op("isnan", x), 0.0, x), -9.0, 9.0), dtype="int64")


def unary(op: str) -> Build:
    return lambda r, x, y: r.op(op, x)


def binary(op: str) -> Build:
    return lambda r, x, y: r.op(op, x, y)


def integer(op: str) -> Build:
    return lambda r, x, y: r.op(op, whole(r, x), whole(r, y))


def nonzero_divisor(op: str) -> Build:
    def build(r: Recorder, x: NodeRef, y: NodeRef) -> NodeRef:
        bottom = whole(r, y)
        return r.op(op, whole(r, x), r.op("where", r.op("eq", bottom, 0), 3, bottom))

    return build


def with_number(op: str, number: Any) -> Build:
    return lambda r, x, y: r.op(op, x, number)


def number_first(op: str, number: Any) -> Build:
    return lambda r, x, y: r.op(op, number, x)


CASES: dict[str, Build] = (
    {op: unary(op) for op in UNARY.split()}
    | {op: binary(op) for op in BINARY.split()}
    | {f"pow_{e}": with_number("pow", e) for e in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5, -3)}
    | {f"{op}_number": with_number(op, 0.7) for op in ("add", "sub", "mul", "div", "fmod", "remainder", "lt")}
    | {f"number_{op}": number_first(op, 2.0) for op in ("sub", "div", "pow")}
    | {f"{op}_int": integer(op) for op in ("add", "sub", "mul", "minimum", "maximum", "eq", "lt", "div")}
    | {f"{op}_int": nonzero_divisor(op) for op in ("fmod", "remainder")}
    | {f"{op}_int": integer(op) for op in ("bitwise_and", "bitwise_or", "bitwise_xor")}
    | {
        "clamp": lambda r, x, y: r.op("clamp", x, -0.75, 1.25),
        "clamp_low": lambda r, x, y: r.op("clamp", x, 0.0),
        "clamp_high": lambda r, x, y: r.op("clamp", x, None, 1.25),
        "clamp_crossed": lambda r, x, y: r.op("clamp", x, 1.0, -1.0),
        "where": lambda r, x, y: r.op("where", r.op("gt", x, 0.0), x, y),
        "where_number": lambda r, x, y: r.op("where", r.op("le", x, y), y, 1.0),
        "abs_int": lambda r, x, y: r.op("abs", whole(r, x)),
        "neg_int": lambda r, x, y: r.op("neg", whole(r, x)),
        "sign_int": lambda r, x, y: r.op("sign", whole(r, x)),
        "pow_int": lambda r, x, y: r.op("pow", whole(r, x), 3),
        "bitwise_not_int": lambda r, x, y: r.op("bitwise_not", whole(r, x)),
        "exp_int": lambda r, x, y: r.op("exp", whole(r, x)),
        "mixed": lambda r, x, y: r.op("add", whole(r, x), y),
        "bool_times_float": lambda r, x, y: r.op("mul", r.op("gt", x, 0.0), y),
        "bool_to_int": lambda r, x, y: r.op("to_copy", r.op("gt", x, 0.0), dtype="int32"),
        "float_to_bool": lambda r, x, y: r.op("to_copy", x, dtype="bool"),
        "int_compared_to_float": lambda r, x, y: r.op("lt", whole(r, x), 0.5),
        "full": lambda r, x, y: r.op("add", x, r.op("full", (PAIRS,), 0.1)),
        "full_nan": lambda r, x, y: r.op("minimum", x, r.op("full", (1,), NAN)),
        "full_int": lambda r, x, y: r.op("full", (PAIRS,), -(2**63), dtype="int64"),
        "arange": lambda r, x, y: r.op("arange", 0, PAIRS, 1, dtype="int64"),
        "arange_steps": lambda r, x, y: r.op("mul", x, r.op("arange", 3, 3 + 2 * PAIRS, 2)),
        "sum_of_bools": lambda r, x, y: r.op("sum", r.op("gt", x, y), (0,), False),
        "prod_of_ints": lambda r, x, y: r.op("prod", r.op("sign", r.op("add", whole(r, x), 20)), (0,), False),
        "any": lambda r, x, y: r.op("any", x, (0,), False),
        "all": lambda r, x, y: r.op("all", r.op("gt", x, -INF), (0,), False),
        "amax_of_ints": lambda r, x, y: r.op("amax", whole(r, x), (0,), False),
        "argmin_of_ints": lambda r, x, y: r.op("argmin", whole(r, x), (0,), False),
    }
)  # fmt: skip


def entry(case: str) -> str:
    """The C++ name of a case."""
    return f"run_{case}".replace("-", "m").replace(".", "p")


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ctypes.CDLL, dict[str, tuple[Traced, AnyRegion]]]:
    """Every case over all pairs of special values, and all programs in one library."""
    left, right = (
        torch.tensor(SPECIAL).repeat(len(SPECIAL)),
        torch.tensor(SPECIAL).repeat_interleave(len(SPECIAL)),
    )
    lowered = {}
    for name, case in CASES.items():
        recorder = Recorder()
        traced = recorder.finish(case(recorder, recorder.input(left), recorder.input(right)))
        lowered[name] = (traced, lower(traced.graph))
    programs = [program(region, entry(name)) for name, (_, region) in lowered.items()]
    return build(tmp_path_factory.mktemp("ops"), programs), lowered


@pytest.mark.parametrize("case", CASES)
def test_an_entry_agrees_with_torch(case: str, built: tuple[ctypes.CDLL, dict[str, tuple[Traced, AnyRegion]]]) -> None:
    library, lowered = built
    traced, region = lowered[case]
    result = call(library, entry(case), traced.graph, region, traced.feeds)[0]
    torch.testing.assert_close(result, traced.expected[0], rtol=1e-6, atol=1e-30, equal_nan=True)


def test_the_tables_hold_every_primitive() -> None:
    assert set(POINTWISE) == (decompose.POINTWISE | decompose.CONSTANTS) - REFUSED
    assert set(VIEWS) == decompose.VIEWS | decompose.BROADCASTS
    assert set(REDUCTIONS) == decompose.REDUCTIONS
    assert set(MATMULS) == decompose.MATMULS


@pytest.mark.parametrize(
    ("number", "ctype", "text"),
    [
        (0.1, "float", "0.1f"),
        (1, "float", "1.0f"),
        (-2.5, "float", "(-2.5f)"),
        (-0.0, "float", "(-0.0f)"),
        (1e-5, "float", "1e-05f"),
        (1073741824, "float", "1073741824.0f"),
        (3.4028234663852886e38, "float", "3.4028235e+38f"),
        (1e39, "float", "__int_as_float(0x7f800000)"),
        (-INF, "float", "__int_as_float(0xff800000)"),
        (NAN, "float", "__int_as_float(0x7fffffff)"),
        (-7, "long long", "-7LL"),
        (True, "bool", "true"),
    ],
)
def test_literals_are_exact(number: float, ctype: Any, text: str) -> None:
    assert literal(number, ctype) == text


def test_every_text_compiles_for_the_device_without_headers(
    built: tuple[ctypes.CDLL, dict[str, tuple[Traced, AnyRegion]]], tmp_path: Path
) -> None:
    recorder = Recorder()
    inverse = recorder.finish(recorder.op("erfinv", recorder.input(torch.zeros(PAIRS))))
    regions = {name: region for name, (_, region) in built[1].items()} | {"erfinv": lower(inverse.graph)}
    maps = {entry(name): region for name, region in regions.items() if isinstance(region, Region) and not region.rounds}
    step = KernelStep(kernel="run_erfinv", grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0"))
    source = "\n".join(device_program(region, name) for name, region in maps.items())
    source = codegen.prelude("math_units", "math") + "\n" + source
    candidate = Candidate(source=source, plan=LaunchPlan(steps=(step,)))
    report = compile_candidate(candidate, "sm_90", cache_dir=tmp_path)
    assert report.ok, report.diagnostics
    assert set(report.resources) == set(maps)


def test_special_function_work_is_counted() -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.ones(4))
    region = lower(recorder.finish(recorder.op("sigmoid", leaf)).graph)
    assert [(line.flops, line.special) for line in region.post] == [(4, 2)]
