"""Matrix operations of whole warps: fragments to matrices and back (PTX ISA, "Warp Level Matrix Instructions").

A product is summed exactly in float64 and rounded once to the accumulator's type; a GPU truncates intermediate sums, so
its last bits may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpsmith.sandbox.emulator.floats import f32_to_half, half_to_f32
from warpsmith.sandbox.emulator.lanes import Lanes, from_warps, to_warps
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.vectors import Array

if TYPE_CHECKING:
    from warpsmith.sandbox.emulator.machine import Machine

SHAPES = {
    ("f32", "f16", "f32", 16), ("f32", "f16", "f32", 8), ("f16", "f16", "f16", 16), ("f16", "f16", "f16", 8),
    ("f32", "bf16", "f32", 16), ("f32", "bf16", "f32", 8), ("f32", "tf32", "f32", 8), ("f32", "tf32", "f32", 4),
    ("s32", "s8", "s32", 32), ("s32", "s8", "s32", 16), ("s32", "u8", "s32", 32), ("s32", "u8", "s32", 16),
}  # fmt: skip
"""(result, A's type, accumulator, depth) of the m16n8 products that are known."""

_LANE = np.arange(32)
_GROUP, _IN_GROUP = _LANE // 4, _LANE % 4


def load_matrices(
    machine: Machine, lanes: Lanes, base: Array, offset: int, count: int, transposed: bool, site: int
) -> list[Array]:
    """`ldmatrix`: lane 8m+r names row r of matrix m; lane 4r+c gets elements 2c and 2c+1 of row r of each."""
    rows = _row_values(machine, lanes, base, offset, count, site)
    out = []
    for number in range(count):
        matrix = rows[:, :, 8 * number : 8 * number + 8]
        if transposed:
            matrix = matrix.swapaxes(2, 3)
        low = matrix[:, :, _GROUP, 2 * _IN_GROUP].astype(np.uint32)
        high = matrix[:, :, _GROUP, 2 * _IN_GROUP + 1].astype(np.uint32)
        out.append(from_warps(lanes, low | high << np.uint32(16)))
    return out


def _row_values(machine: Machine, lanes: Lanes, base: Array, offset: int, count: int, site: int) -> Array:
    """(rows, warps, 32, 8): the eight 16-bit elements that each addressing lane names."""
    used = (lanes.col_index % 32) < 8 * count
    mask = used if lanes.mask is None else lanes.mask & used
    request = Request(lanes, base, offset, 16, site, mask if 8 * count < 32 else lanes.mask)
    words = machine.shared.load(request, np.dtype(np.uint32), 4, cluster=False, strong=False)
    halves = []
    for word in words:
        grid = to_warps(lanes, np.broadcast_to(word, lanes.shape), 0)
        halves += [grid.astype(np.uint16), (grid >> np.uint32(16)).astype(np.uint16)]
    return np.stack(halves, axis=-1)


def store_matrices(
    machine: Machine, lanes: Lanes, base: Array, offset: int, values: tuple[Array, ...], transposed: bool, site: int
) -> None:
    """`stmatrix`: the inverse of `ldmatrix`."""
    shape = (lanes.shape[0], lanes.geometry.warps, 32, 8)
    rows = np.zeros(shape, np.uint16)
    for number, value in enumerate(values):
        grid = to_warps(lanes, np.broadcast_to(value, lanes.shape), 0)
        matrix = np.zeros((*shape[:2], 8, 8), np.uint16)
        matrix[:, :, _GROUP, 2 * _IN_GROUP] = grid.astype(np.uint16)
        matrix[:, :, _GROUP, 2 * _IN_GROUP + 1] = (grid >> np.uint32(16)).astype(np.uint16)
        rows[:, :, 8 * number : 8 * number + 8] = matrix.swapaxes(2, 3) if transposed else matrix
    used = (lanes.col_index % 32) < 8 * len(values)
    mask = used if lanes.mask is None else lanes.mask & used
    request = Request(lanes, base, offset, 16, site, mask if 8 * len(values) < 32 else lanes.mask)
    pairs = rows.reshape(*shape[:3], 4, 2).astype(np.uint32)
    words = pairs[..., 0] | pairs[..., 1] << np.uint32(16)
    parts = tuple(np.ascontiguousarray(from_warps(lanes, words[..., place])) for place in range(4))
    machine.shared.store(request, np.dtype(np.uint32), parts, cluster=False, strong=False)


def transpose_matrix(lanes: Lanes, value: Array) -> Array:
    """`movmatrix`: an 8x8 fragment of 16-bit elements, transposed."""
    grid = to_warps(lanes, value, 0)
    matrix = np.zeros((*grid.shape[:2], 8, 8), np.uint32)
    matrix[:, :, _GROUP, 2 * _IN_GROUP] = grid & np.uint32(0xFFFF)
    matrix[:, :, _GROUP, 2 * _IN_GROUP + 1] = grid >> np.uint32(16)
    low, high = matrix[:, :, 2 * _IN_GROUP, _GROUP], matrix[:, :, 2 * _IN_GROUP + 1, _GROUP]
    return from_warps(lanes, low | high << np.uint32(16))


def multiply_accumulate(
    lanes: Lanes, a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...], a_type: str, b_type: str,
    result: str, depth: int,
) -> list[Array]:  # fmt: skip
    """`mma.sync` m16n8: d = a * b + c on fragments."""
    left = _operand(lanes, a, a_type, 16, depth)
    right = _operand(lanes, b, b_type, 8, depth)
    total = np.matmul(left, right.swapaxes(2, 3))
    if result == "f16":
        start = half_to_f32(_accumulator(lanes, _unpacked(c)).astype(np.uint16), "f16")
        return _packed(lanes, f32_to_half(total + start, "f16"))
    if result == "s32":
        wide = total.astype(np.int64) + _accumulator(lanes, c).view(np.int32)
        return _fragments(lanes, wide.astype(np.int32).view(np.uint32))
    return _fragments(lanes, (total + _accumulator(lanes, c)).astype(np.float32))


def _operand(lanes: Lanes, registers: tuple[Array, ...], kind: str, height: int, depth: int) -> Array:
    """(rows, warps, height, depth) in float64 from the registers of A, or of B with its columns as rows.

    A register holds 4/size neighbouring elements of one row; lane 4g+t starts at row g and element t*per. Registers
    go first over the two halves of the rows (A only), then along the depth.
    """
    size = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}[kind]
    per, halves = 4 // size, height // 8
    out: Any = None
    for number, register in enumerate(registers):
        grid = to_warps(lanes, np.broadcast_to(register, lanes.shape), 0)
        row = _GROUP + 8 * (number % halves)
        start = (number // halves) * 4 * per + _IN_GROUP * per
        if out is None:
            out = np.zeros((*grid.shape[:2], height, depth), np.float64)
        for place, value in enumerate(_elements(grid, kind)):
            out[:, :, row, start + place] = value
    return out


def _elements(grid: Array, kind: str) -> list[Array]:
    """The numbers packed in each 32-bit register, the lowest first."""
    if kind == "tf32":
        return [(grid & np.uint32(0xFFFFE000)).view(np.float32)]
    if kind in ("f16", "bf16"):
        return [half_to_f32((grid >> np.uint32(shift)).astype(np.uint16), kind) for shift in (0, 16)]
    pieces = [(grid >> np.uint32(8 * place)).astype(np.uint8) for place in range(4)]
    return [piece.view(np.int8) for piece in pieces] if kind == "s8" else pieces


def _accumulator(lanes: Lanes, registers: tuple[Array, ...]) -> Array:
    """(rows, warps, 16, 8) from four registers: rows g and g+8, columns 2t and 2t+1."""
    out: Any = None
    for number, register in enumerate(registers):
        grid = to_warps(lanes, np.broadcast_to(register, lanes.shape), 0)
        if out is None:
            out = np.zeros((*grid.shape[:2], 16, 8), grid.dtype)
        out[:, :, _GROUP + 8 * (number // 2), 2 * _IN_GROUP + number % 2] = grid
    return out


def _fragments(lanes: Lanes, matrix: Array) -> list[Array]:
    return [
        from_warps(lanes, np.ascontiguousarray(matrix[:, :, _GROUP + 8 * (number // 2), 2 * _IN_GROUP + number % 2]))
        for number in range(4)
    ]


def _unpacked(registers: tuple[Array, ...]) -> tuple[Array, ...]:
    """Two packed f16 registers as four of one element each."""
    return tuple((register >> np.uint32(shift)) & np.uint32(0xFFFF) for register in registers for shift in (0, 16))


def _packed(lanes: Lanes, matrix: Array) -> list[Array]:
    parts = _fragments(lanes, matrix.astype(np.uint32))
    return [parts[0] | parts[1] << np.uint32(16), parts[2] | parts[3] << np.uint32(16)]
