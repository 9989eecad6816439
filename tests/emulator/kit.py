"""What the emulator's tests share: compile CUDA or write PTX by hand, run it on numpy arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.backend import module_variables
from warpsmith.sandbox.emulator.grid import Disorder, Shape
from warpsmith.sandbox.emulator.launch import Run, run_kernel
from warpsmith.sandbox.emulator.machine import Checks
from warpsmith.sandbox.emulator.program import compile_kernel, parse_cached
from warpsmith.sandbox.emulator.regions import Region
from warpsmith.sandbox.nvrtc import SUCCESS, include_dirs, load_nvrtc

Dims = tuple[int, ...]
HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"


@lru_cache(maxsize=128)
def cuda(source: str, arch: str = "compute_90", *flags: str) -> str:
    """PTX of a CUDA text."""
    nvrtc = load_nvrtc()
    folders = tuple(f"--include-path={folder}" for folder in include_dirs(nvrtc))
    done = nvrtc.compile(source, options=(f"--gpu-architecture={arch}", "-lineinfo", *folders, *flags))
    assert done.code == SUCCESS, done.log
    return done.ptx


def aligned(values: Any, dtype: Any = None, boundary: int = 256) -> np.ndarray:
    """A copy of an array at an address with that alignment."""
    values = np.asarray(values, dtype)
    raw = np.zeros(values.nbytes + boundary, np.uint8)
    skip = -raw.ctypes.data % boundary
    out = raw[skip : skip + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out


def run(
    text: str, entry: str, grid: Dims, block: Dims, args: Sequence[Any], *, outs: Sequence[int] = (),
    scratch: Sequence[int] = (), shared: int = 0, cluster: Dims = (1, 1, 1), checks: Checks | None = None,
    blocks: range | None = None, step_limit: int = 100_000, cooperative: bool = False,
    disorder: Disorder | None = None,
) -> Run:  # fmt: skip
    """Launch on numpy arrays (as pointers) and numbers; arrays at positions `outs` are tracked and not yet written,
    those at `scratch` tracked and written."""
    kernel = compile_kernel(text, entry)
    addresses, regions = module_variables(parse_cached(text))
    params = {}
    for position, (declared, value) in enumerate(zip(kernel.function.params, args, strict=True)):
        if isinstance(value, np.ndarray):
            region = Region(
                f"arg{position}", value.ctypes.data, value.nbytes, tracked=position in (*outs, *scratch), keep=value
            )
            if position in scratch:
                region.mark_written()
            regions.append(region)
            data = struct.pack("<Q", value.ctypes.data)
        elif isinstance(value, float):
            data = struct.pack("<f" if declared.size == 4 else "<d", value)
        else:
            data = int(value).to_bytes(declared.size, "little", signed=value < 0)
        params[declared.name] = (data, declared.align)
    shape = Shape(_three(grid), _three(block), _three(cluster), shared, cooperative)
    return run_kernel(
        kernel, shape, params, regions, addresses=addresses, blocks=blocks, checks=checks or Checks(),
        step_limit=step_limit, disorder=disorder,
    )  # fmt: skip


def _three(dims: Dims) -> tuple[int, int, int]:
    x, y, z = (*dims, 1, 1, 1)[:3]
    return x, y, z


def good(result: Run) -> Run:
    """The run, asserted to be clean."""
    assert result.failure is None, result.failure
    return result


_NUMPY = {
    "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.uint16,
    "bf16": np.uint16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "b64": np.uint64,
    "u64": np.uint64, "s64": np.int64, "f64": np.float64,
}  # fmt: skip


def operate(body: str, inputs: Sequence[tuple[str, Any]], outputs: Sequence[str]) -> list[np.ndarray]:
    """Run instructions on every element: `%a0`, `%a1`, ... hold the inputs, `%d0`, ... the results.

    A `pred` input is true where its value is not 0; a `pred` result is stored as 0 or 1.
    """
    arrays = [aligned(values, _NUMPY["u32" if kind == "pred" else kind]) for kind, values in inputs]
    count = len(arrays[0])
    results = [aligned(np.zeros(count), _NUMPY["u32" if kind == "pred" else kind]) for kind in outputs]
    params = ",\n".join(f".param .u64 p{number}" for number in range(len(arrays) + len(results)))
    lines = [".visible .entry k(\n" + params + "\n)\n{", ".reg .b64 %x<64>;", ".reg .b32 %i<8>, %w<64>;"]
    lines += [".reg .pred %p<8>;", ".reg .b32 %r<8>;", ".reg .b64 %rd<8>;", ".reg .b16 %h<8>;", ".reg .f32 %f<8>;"]
    lines += ["mov.u32 %i0, %tid.x;", "mov.u32 %i1, %ctaid.x;", "mov.u32 %i2, %ntid.x;"]
    lines += ["mad.lo.s32 %i3, %i1, %i2, %i0;", f"setp.ge.u32 %p7, %i3, {count};", "@%p7 bra DONE;"]
    for number, ((kind, _), array) in enumerate(zip(inputs, arrays, strict=True)):
        lines += _element(number, array.dtype.itemsize)
        if kind == "pred":
            lines += [f".reg .pred %a{number};", f"ld.global.u32 %w{number}, [%x{number}];"]
            lines += [f"setp.ne.u32 %a{number}, %w{number}, 0;"]
        else:
            lines += [f".reg .{_register(kind)} %a{number};", f"ld.global.{_memory(kind)} %a{number}, [%x{number}];"]
    lines += [f".reg .{_register(kind)} %d{number};" for number, kind in enumerate(outputs)]
    lines.append(body)
    for number, (kind, array) in enumerate(zip(outputs, results, strict=True)):
        place = number + len(arrays)
        lines += _element(place, array.dtype.itemsize)
        if kind == "pred":
            lines += [f"selp.u32 %w{place}, 1, 0, %d{number};", f"st.global.u32 [%x{place}], %w{place};"]
        else:
            lines.append(f"st.global.{_memory(kind)} [%x{place}], %d{number};")
    text = HEADER + "\n".join([*lines, "DONE: ret;", "}"])
    outs = range(len(arrays), len(arrays) + len(results))
    good(run(text, "k", (-(-count // 64),), (64,), [*arrays, *results], outs=tuple(outs)))
    return results


def _element(number: int, size: int) -> list[str]:
    return [f"ld.param.u64 %x{number}, [p{number}];", f"mad.wide.u32 %x{number}, %i3, {size}, %x{number};"]


def _register(kind: str) -> str:
    return {"u8": "b16", "s8": "b16", "f16": "b16", "bf16": "b16"}.get(kind, kind)


def _memory(kind: str) -> str:
    return {"f16": "b16", "bf16": "b16"}.get(kind, kind)


def bits32(value: float) -> int:
    """Bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
