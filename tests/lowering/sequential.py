"""Regions as plain sequential C++: the lines verbatim inside loops, compiled by g++, run through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels import codegen
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.region import Axis, Line, Load, MatmulRegion, Reduction, Region, Store

_PRELUDE = """
#include <math.h>
#include <string.h>
static inline float __int_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double __longlong_as_double(long long bits) { double x; memcpy(&x, &bits, 8); return x; }
static inline long long __double_as_longlong(double x) { long long bits; memcpy(&bits, &x, 8); return bits; }
#define __device__
#define __forceinline__ inline
// The special-function unit rounded from float64, then `off_*` units in the last place away from that.
static int off_exp2 = 0, off_reciprocal = 0, off_exp = 0;
static float moved(double exact, int units) {
    float x = (float)exact;
    if (fabsf(x) < 1.17549435e-38f || fabsf(x) > 3e38f || x != x) return x;
    int bits; memcpy(&bits, &x, 4); bits += units; memcpy(&x, &bits, 4);
    return x;
}
static float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
static float moved_exp(float x) { return moved(exp((double)x), off_exp); }
namespace math {
static float exp2_unit(float x) { return flushed(moved(exp2((double)x), off_exp2)); }
static float reciprocal_unit(float x) { return flushed(moved(1.0 / (double)flushed(x), off_reciprocal)); }
static float divide(float x, float y) { return x / y; }
static float reciprocal(float x) { return 1.0f / x; }
static float sqrt(float x) { return sqrtf(x); }
}
#define expf moved_exp
"""
DEVICE_MATH = _PRELUDE + codegen.part("math")
"""The functions of `device_math.cu` for the host."""
_C_TYPES = {"float32": "float", "int64": "long long", "int32": "int", "bool": "bool"}
_START = {"sum": "0", "prod": "1", "any": "false", "all": "true", "argmax": "-1", "argmin": "-1"}


def program(region: AnyRegion, name: str) -> str:
    """A C++ function of all buffers that computes the region."""
    body = _matmul(region) if isinstance(region, MatmulRegion) else _loops(region)
    return f'extern "C" void {name}({", ".join(_parameters(region))}) {{\n{body}\n}}\n'


def device_program(region: Region, name: str) -> str:
    """A map as a CUDA kernel, one thread a point."""
    (axis,) = region.kept
    point = f"const long long {axis.name} = (long long)blockIdx.x * blockDim.x + threadIdx.x;"
    lines = [_load(x) for x in region.loads] + [_line(x) for x in region.post] + [_store(x) for x in region.stores]
    body = "\n".join([point, f"if ({axis.name} >= {axis.size}) return;", *lines])
    return f'extern "C" __global__ void {name}({", ".join(_parameters(region))}) {{\n{body}\n}}\n'


def _all_loads(region: AnyRegion) -> tuple[Load, ...]:
    if isinstance(region, MatmulRegion):
        return region.a_loads + region.b_loads + region.epilogue_loads
    return region.loads


def _arguments(region: AnyRegion) -> tuple[dict[str, Load], dict[str, Store]]:
    loads = {load.buffer: load for load in _all_loads(region)}
    return loads, {store.buffer: store for store in region.stores}


def _parameters(region: AnyRegion) -> list[str]:
    loads, stores = _arguments(region)
    read = [f"float {_c(n)}" if x.address is None else f"const float* {_c(n)}" for n, x in loads.items()]
    return read + [f"{_C_TYPES[store.dtype]}* {name}" for name, store in stores.items()]


def _c(buffer: str) -> str:
    return buffer.replace(":", "_").replace(".", "_")


def _nest(axes: tuple[Axis, ...], body: str) -> str:
    for axis in reversed(axes):
        body = f"for (long long {axis.name} = 0; {axis.name} < {axis.size}; ++{axis.name}) {{\n{body}\n}}"
    return body


def _load(load: Load) -> str:
    source = _c(load.buffer) if load.address is None else f"{_c(load.buffer)}[{load.address.c_text()}]"
    return f"const float {load.var} = {source};"


def _line(line: Line) -> str:
    return f"const {line.ctype} {line.var} = {line.text};"


def _store(store: Store) -> str:
    return f"{store.buffer}[{store.address.c_text()}] = ({_C_TYPES[store.dtype]}){store.var};"


def _fold(reduction: Reduction, position: str) -> str:
    var, x = f"{reduction.var}_", reduction.operand
    match reduction.kind:
        case "sum":
            return f"{var} += {x};"
        case "prod":
            return f"{var} *= {x};"
        case "any":
            return f"{var} = {var} || {x};"
        case "all":
            return f"{var} = {var} && {x};"
    symbol = ">" if reduction.kind.endswith("max") else "<"
    better = f"first || ({x} != {x} && {var}best == {var}best) || {x} {symbol} {var}best"
    found = f"{var}best = {x}; {var} = {position};" if reduction.kind.startswith("arg") else f"{var} = {var}best = {x};"
    return f"if ({better}) {{ {found} }}"


def _declare(reduction: Reduction, lines: dict[str, str]) -> str:
    best = "float" if reduction.kind.startswith("arg") else reduction.ctype
    best = lines.get(reduction.operand, best) if reduction.kind.startswith("arg") else best
    start = _START.get(reduction.kind, "0")
    return f"{reduction.ctype} {reduction.var}_ = {start}; {best} {reduction.var}_best = 0;"


def _loops(region: Region) -> str:
    """Kept loops around one loop a round; kept-level text stands outside the reduced loops."""
    inner = [load for load in region.loads if load.level in ("full", "reduced")]
    if not region.reduced:
        body = [_load(load) for load in region.loads] + [_line(line) for line in region.post]
        return _nest(region.kept, "\n".join(body + [_store(store) for store in region.stores]))
    stride, terms = region.reduced_size, []
    for axis in region.reduced:
        stride //= axis.size
        terms.append(f"{axis.name} * {stride}")
    body = [_load(load) for load in region.loads if load.level in ("kept", "scalar")]
    for turn in region.rounds:
        types = {line.var: line.ctype for line in turn.lines}
        body += [_declare(reduction, types) for reduction in turn.reductions]
        sweep = [_load(load) for load in inner] + [_line(line) for line in turn.lines]
        sweep += [_fold(reduction, " + ".join(terms)) for reduction in turn.reductions]
        body.append("{ bool first = true;")
        body.append(_nest(region.reduced, "\n".join([*sweep, "first = false;"])))
        body.append("}")
        body += [f"const {r.ctype} {r.var} = {r.var}_;" for r in turn.reductions]
        body += [_line(line) for line in turn.finish]
    body += [_store(store) for store in region.stores if store.level == "kept"]
    last = [_load(load) for load in inner] + [_line(line) for line in region.post]
    last += [_store(store) for store in region.stores if store.level == "full"]
    if any(store.level == "full" for store in region.stores):
        body.append(_nest(region.reduced, "\n".join(last)))
    return _nest(region.kept, "\n".join(body))


def _matmul(region: MatmulRegion) -> str:
    side_a = [_load(x) for x in region.a_loads] + [_line(x) for x in region.a_lines]
    side_b = [_load(x) for x in region.b_loads] + [_line(x) for x in region.b_lines]
    step = ["{ float pa, pb;", "{", *side_a, f"pa = {region.a_var}; }}"]
    step += ["{", *side_b, f"pb = {region.b_var}; }}", "acc += pa * pb; }"]
    body = ["float acc = 0;", _nest((Axis("k", region.k),), "\n".join(step))]
    body += [_load(x) for x in region.epilogue_loads] + [_line(x) for x in region.epilogue]
    body += [_store(store) for store in region.stores]
    axes = (Axis("b", region.batch), Axis("m", region.m), Axis("n", region.n))
    return _nest(axes, "\n".join(body))


def build(folder: Path, sources: list[str]) -> ctypes.CDLL:
    """Compile functions into one library."""
    source, library = folder / "regions.cpp", folder / "regions.so"
    source.write_text(DEVICE_MATH + "\n".join(sources))
    command = ["g++", "-O0", "-shared", "-fPIC", "-ffp-contract=off", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))


def call(
    library: ctypes.CDLL, name: str, graph: OpGraph, region: AnyRegion, feeds: dict[str, Any]
) -> list[torch.Tensor]:
    """Run a compiled region on its inputs; outputs start poisoned."""
    loads, stores = _arguments(region)
    made: dict[str, torch.Tensor] = {}
    for position, ref in enumerate(graph.outputs):
        spec = graph.spec(ref.name)
        dtype = getattr(torch, spec.dtype)
        dense = torch.empty_strided(spec.shape, spec.strides, dtype=dtype)
        contiguous = dense.untyped_storage().nbytes() != spec.numel * dtype.itemsize
        made[f"out{position}"] = (torch.empty(spec.shape, dtype=dtype) if contiguous else dense).fill_(77)
    passed: list[Any] = []
    for buffer, load in loads.items():
        value = feeds[buffer]
        passed.append(ctypes.c_float(value) if load.address is None else ctypes.c_void_p(value.data_ptr()))
    passed += [ctypes.c_void_p(made[buffer].data_ptr()) for buffer in stores]
    getattr(library, name)(*passed)
    return list(made.values())


def run(folder: Path, graph: OpGraph, feeds: dict[str, Any]) -> tuple[AnyRegion, list[torch.Tensor]]:
    """Lower, compile and run a graph."""
    region = lower(graph)
    return region, call(build(folder, [program(region, "region")]), "region", graph, region, feeds)
