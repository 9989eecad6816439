"""Region: what one kernel (set) has to compute, free of any decision about how.

A region is an iteration space of *kept* axes (they survive into the output) and *reduced* axes, a set of loads, up to
three rounds of reductions over the reduced axes, and stores. Everything between is a list of typed C++ lines in
single-assignment form, written by the lowering. Families decide who computes which point, where data lives and in
which order; the lines are the default text of their code slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels.hashed import HashKept, hash_kept
from warpsmith.kernels.indexing import Expr

Level = Literal["full", "kept", "reduced", "scalar"]
"""Which axes a value depends on: both kinds, kept only, reduced only, or none.

Where a region has axes of one kind alone, whatever depends on an axis is `full`; results of reductions are `kept`.
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of the iteration space; `name` is the variable that index expressions use (`k0`, `r0`, ...)."""

    name: str
    size: int


@hash_kept
@dataclass(frozen=True, slots=True)
class Load(HashKept):
    """A read `var = buffer[address]`, converted to the region's compute type.

    `address` counts elements of `dtype`; `predicate` (C++ text over axis variables) guards it, `fill` is read outside.
    A scalar argument (a Python number) has address None.
    """

    var: str
    buffer: str
    dtype: str
    address: Expr | None
    level: Level
    numel: int
    """Elements of the buffer that any point of the iteration may touch (for traffic estimates)."""
    predicate: str | None = None
    fill: str = "0.0f"


@hash_kept
@dataclass(frozen=True, slots=True)
class Line(HashKept):
    """One statement `const <ctype> <var> = <text>;` over earlier variables and axis variables.

    A line that several lists need (two rounds, `post`) stands in each with the same text; lines of a round's `finish`
    stay visible to everything after it and are not repeated.
    """

    var: str
    ctype: str
    text: str
    level: Level
    uses: tuple[str, ...]
    flops: int = 1
    uses_axes: bool = False
    """Whether the text names axis variables (index-dependent values such as a triangular mask)."""
    special: int = 0
    """Results of the special-function unit (MUFU) that it takes: exp, log, division, roots."""
    instructions: int = 0
    """Instructions of the device; 0 where nobody has counted them."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """`var` = reduction of `operand` over the reduced axes.

    `arg*` kinds yield an int64 position along the flattened reduced axes; ties and NaN as torch on CPU (first index,
    NaN wins). `var` is at kept level and may be used by later rounds, `post` and `epilogue` lines.
    """

    var: str
    kind: Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]
    operand: str
    ctype: str = "float"


@dataclass(frozen=True, slots=True)
class Round:
    """Reductions that can run in one sweep. `lines` compute their operands from loads and earlier results only."""

    lines: tuple[Line, ...]
    reductions: tuple[Reduction, ...]
    finish: tuple[Line, ...]
    """Kept-level lines that follow the reductions (division by the count, rsqrt, ...)."""


@hash_kept
@dataclass(frozen=True, slots=True)
class Store(HashKept):
    """A write `buffer[address] = (dtype) var`; level tells whether per point or per kept point."""

    var: str
    buffer: str
    dtype: str
    address: Expr
    level: Level
    numel: int


@hash_kept
@dataclass(frozen=True, slots=True)
class Region(HashKept):
    """A map (no rounds) or a reduce-map (one to three rounds over one set of reduced axes)."""

    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    loads: tuple[Load, ...]
    rounds: tuple[Round, ...]
    post: tuple[Line, ...]
    """Full-level lines after the last round, feeding full-level stores."""
    stores: tuple[Store, ...]
    flops: int
    floor_bytes: int
    source_ops: tuple[str, ...] = ()
    """Names of the graph's operators, for messages and documentation."""

    @property
    def kept_size(self) -> int:
        """Points of the kept axes."""
        return _product(self.kept)

    @property
    def reduced_size(self) -> int:
        """Points of the reduced axes (1 for a map)."""
        return _product(self.reduced)


@dataclass(frozen=True, slots=True)
class HalfPlane:
    """Points of a product's result at which `m * row + n * column + offset >= 0`."""

    m: int
    n: int
    offset: int

    def columns(self, row: int, count: int) -> tuple[int, int]:
        """First of `count` columns in the half-plane at a row, and the one after the last; equal where there is
        none."""
        rest = self.m * row + self.offset
        if self.n == 0:
            return (0, count) if rest >= 0 else (0, 0)
        if self.n > 0:
            return min(count, max(0, -(rest // self.n))), count
        return 0, max(0, min(count, rest // -self.n + 1))


@hash_kept
@dataclass(frozen=True, slots=True)
class MatmulRegion(HashKept):
    """out[b, m, n] = epilogue(sum_k a(b, m, k) * b(b, k, n), ...).

    Axis variables: `b`, `m`, `n`, `k` (the batch is one flat axis). `a_lines` turn `a_loads` into `a_var`; likewise b;
    `epilogue` lines may use `acc`, `epilogue_loads` and axis variables.
    """

    batch: int
    m: int
    n: int
    k: int
    a_loads: tuple[Load, ...]
    a_lines: tuple[Line, ...]
    a_var: str
    b_loads: tuple[Load, ...]
    b_lines: tuple[Line, ...]
    b_var: str
    epilogue_loads: tuple[Load, ...]
    epilogue: tuple[Line, ...]
    stores: tuple[Store, ...]
    flops: int
    """Of the sums that an output depends on, and of all else."""
    floor_bytes: int
    source_ops: tuple[str, ...] = ()
    needed: tuple[HalfPlane, ...] = ()
    """Outside of any of these no output depends on `acc`, whatever the inputs hold: a mask selects something else
    there."""

    @property
    def needed_sums(self) -> int:
        """Points (b, m, n) at which an output may depend on `acc`."""
        if not self.needed:
            return self.batch * self.m * self.n
        return self.batch * sum(_common(self.needed, row, self.n) for row in range(self.m))


def _common(planes: tuple[HalfPlane, ...], row: int, count: int) -> int:
    """Columns of a row that lie in all half-planes."""
    ends = [plane.columns(row, count) for plane in planes]
    return max(0, min(end for _, end in ends) - max(first for first, _ in ends))


@hash_kept
@dataclass(frozen=True, slots=True)
class ScanRegion(HashKept):
    """out[kept, s] = post(the fold of operand(kept, 0), ..., operand(kept, s)): running results along one axis.

    `lines` turn `loads` into `operand`; `post` lines may use `var` (the running result), `post_loads` and axis
    variables. With `exclusive`, `var` at s folds what lies before s alone: the identity at 0, and the last position
    has no operand. A load that both need stands in both lists under one name.
    """

    kept: tuple[Axis, ...]
    axis: Axis
    """The scanned axis; it keeps its size, also where that is 1."""
    loads: tuple[Load, ...]
    lines: tuple[Line, ...]
    operand: str
    kind: Literal["sum", "prod"]
    ctype: str
    var: str
    exclusive: bool
    post_loads: tuple[Load, ...]
    post: tuple[Line, ...]
    stores: tuple[Store, ...]
    flops: int
    floor_bytes: int
    source_ops: tuple[str, ...] = ()

    @property
    def kept_size(self) -> int:
        """Points of the kept axes: independent scans."""
        return _product(self.kept)

    @property
    def operands(self) -> int:
        """Positions that have an operand."""
        return self.axis.size - (1 if self.exclusive else 0)


@dataclass(frozen=True, slots=True)
class WindowDim:
    """A dimension that windows move along: tap t of output o is input `o * stride - padding + t * dilation`."""

    out: int
    extent: int
    """Size of the input; taps before 0 or beyond it count as the fold's identity."""
    taps: int
    stride: int
    padding: int
    dilation: int


@hash_kept
@dataclass(frozen=True, slots=True)
class WindowRegion(HashKept):
    """out[kept, o0, ...] = post(fold over taps t0, ... of operand(kept, p0, ...) * weight(kept, t0, ...)).

    Axis variables: kept axes, and by dimension `pN` (position in the input), `oN` (output) and `tN` (tap). `lines`
    turn `loads` into `operand`, over kept and input axes; `weight_lines` likewise, over kept and tap axes (without
    `weight` nothing is multiplied); `post` lines may use `var` (the fold), `position`, `post_loads`, kept and output
    axes.
    """

    kept: tuple[Axis, ...]
    dims: tuple[WindowDim, ...]
    """One to three, the outermost first."""
    kind: Literal["sum", "max"]
    loads: tuple[Load, ...]
    lines: tuple[Line, ...]
    operand: str
    weight_loads: tuple[Load, ...]
    weight_lines: tuple[Line, ...]
    weight: str | None
    var: str
    position: str | None
    """Where results need it: the flat index among the inputs of one kept point at which the maximum stands, the
    lowest among equals."""
    post_loads: tuple[Load, ...]
    post: tuple[Line, ...]
    stores: tuple[Store, ...]
    flops: int
    floor_bytes: int
    source_ops: tuple[str, ...] = ()

    @property
    def kept_size(self) -> int:
        """Points of the kept axes: planes that windows move over."""
        return _product(self.kept)

    @property
    def taps(self) -> int:
        """Elements of one window."""
        total = 1
        for dim in self.dims:
            total *= dim.taps
        return total


OneRegion = Region | MatmulRegion | ScanRegion | WindowRegion
"""What one kernel (set) computes."""


def _product(axes: tuple[Axis, ...]) -> int:
    total = 1
    for axis in axes:
        total *= axis.size
    return total
