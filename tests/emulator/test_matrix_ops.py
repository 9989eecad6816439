"""Matrix opcodes against matrix products: fragments as the PTX ISA lays them out, here read back element by element."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

K = 'extern "C" __global__ void k'

CASES = [
    ("m16n8k16.row.col.f32.f16.f16.f32", 16, "f16", "f32"), ("m16n8k8.row.col.f32.f16.f16.f32", 8, "f16", "f32"),
    ("m16n8k16.row.col.f16.f16.f16.f16", 16, "f16", "f16"), ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, "bf16", "f32"),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", 8, "tf32", "f32"), ("m16n8k4.row.col.f32.tf32.tf32.f32", 4, "tf32", "f32"),
    ("m16n8k32.row.col.s32.s8.s8.s32", 32, "s8", "s32"), ("m16n8k16.row.col.s32.u8.s8.s32", 16, "u8", "s32"),
]  # fmt: skip
DTYPES = {"f16": np.float16, "bf16": np.uint16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8, "f32": np.float32,
          "s32": np.int32}  # fmt: skip


def operand(kind: str, rows: int, depth: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix as stored, and as float64 numbers."""
    values = np.random.default_rng(seed).integers(-8, 8, (rows, depth)).astype(np.float64)
    values = np.abs(values) if kind == "u8" else values
    if kind == "bf16":
        return aligned(values.astype(np.float32).view(np.uint32) >> 16, np.uint16), values
    return aligned(values, DTYPES[kind]), values


@pytest.mark.parametrize(("shape", "depth", "kind", "result"), CASES)
def test_mma_of_row_major_a_and_column_major_b(shape: str, depth: int, kind: str, result: str) -> None:
    size = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}[kind]
    per = 4 // size
    second = "s8" if kind == "u8" else kind
    segments = depth // (4 * per)
    a_count, b_count = 2 * segments, segments
    packed = result == "f16"
    letter = "f" if result == "f32" else "r"
    d_count = 2 if packed else 4
    operands = iter(range(100))
    names = ["{" + ", ".join(f"%{next(operands)}" for _ in range(count)) + "}" for count in (d_count, a_count, b_count)]
    names.append("{" + ", ".join(f"%{number}" for number in range(d_count)) + "}")
    outs = ", ".join(f'"+{letter}"(d[{number}])' for number in range(d_count))
    ins = ", ".join([f'"r"(a[{n}])' for n in range(a_count)] + [f'"r"(b[{n}])' for n in range(b_count)])
    place = "(g + 8 * n) * 4 + t" if packed else "(g + 8 * (n / 2)) * 8 + 2 * t + n % 2"
    element = "float" if result == "f32" else "unsigned"
    source = (
        K
        + f"""(const unsigned* A, const unsigned* B, {element}* C) {{
      int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
      unsigned a[{a_count}], b[{b_count}]; {element} d[{d_count}];
      for (int n = 0; n < {a_count}; n++) a[n] = A[(g + 8 * (n % 2)) * {depth // per} + (n / 2) * 4 + t];
      for (int n = 0; n < {b_count}; n++) b[n] = B[g * {depth // per} + n * 4 + t];
      for (int n = 0; n < {d_count}; n++) d[n] = C[{place}];
      asm volatile("mma.sync.aligned.{shape} {", ".join(names)};" : {outs} : {ins});
      for (int n = 0; n < {d_count}; n++) C[{place}] = d[n];
    }}"""
    )
    stored_a, a = operand(kind, 16, depth, 1)
    stored_b, b = operand(second, 8, depth, 2)
    start = np.random.default_rng(3).integers(-20, 20, (16, 8))
    c = aligned(start, np.float16 if packed else DTYPES[result])
    good(run(cuda(source), "k", (1,), (32,), [stored_a, stored_b, c]))
    assert np.array_equal(c.astype(np.float64), a @ b.T + start)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_and_stmatrix(count: int, trans: str) -> None:
    regs = "{" + ", ".join(f"%{n}" for n in range(count)) + "}"
    outs = ", ".join(f'"=r"(v[{n}])' for n in range(count))
    ins = ", ".join(f'"r"(v[{n}])' for n in range(count))
    source = (
        K
        + f"""(const unsigned short* x, unsigned* y, unsigned short* z) {{
      __shared__ __align__(16) unsigned short s[{64 * count}], u[{64 * count}];
      for (int i = threadIdx.x; i < {64 * count}; i += 32) s[i] = x[i];
      __syncthreads();
      unsigned at = (unsigned)__cvta_generic_to_shared(s + threadIdx.x % {8 * count} * 8), v[{count}];
      asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {regs}, [%{count}];"
        : {outs} : "r"(at) : "memory");
      for (int n = 0; n < {count}; n++) y[n * 32 + threadIdx.x] = v[n];
      unsigned to = (unsigned)__cvta_generic_to_shared(u + threadIdx.x % {8 * count} * 8);
      asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%{count}], {regs};"
        :: {ins}, "r"(to) : "memory");
      __syncthreads();
      for (int i = threadIdx.x; i < {64 * count}; i += 32) z[i] = u[i];
    }}"""
    )
    x = aligned(np.arange(64 * count), np.uint16)
    y, z = aligned(np.zeros(32 * count), np.uint32), aligned(np.zeros(64 * count), np.uint16)
    result = good(run(cuda(source), "k", (1,), (32,), [x, y, z], outs=[1, 2]))
    for number in range(count):
        tile = x[64 * number : 64 * number + 64].reshape(8, 8).astype(np.int64)
        tile = tile.T if trans else tile
        expected = [
            int(tile[lane // 4, 2 * (lane % 4)] | tile[lane // 4, 2 * (lane % 4) + 1] << 16) for lane in range(32)
        ]
        assert y[32 * number : 32 * number + 32].tolist() == expected
    assert np.array_equal(z, x)
    assert result.counters["shared_load_bank_conflicts"] == 0


def test_movmatrix() -> None:
    source = (
        K
        + """(const unsigned* x, unsigned* y) {
      unsigned v = x[threadIdx.x], w;
      asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(w) : "r"(v));
      y[threadIdx.x] = w;
    }"""
    )
    tile = aligned(np.arange(64).reshape(8, 8), np.uint16)
    out = aligned(np.zeros((8, 8)), np.uint16)
    good(run(cuda(source), "k", (1,), (32,), [tile, out]))
    assert np.array_equal(out, tile.T)
