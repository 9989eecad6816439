"""How the matrix product's operands are read: along which axis, how many values at a time, with or without copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warpsmith.kernels.families.common import divisible
from warpsmith.kernels.region import Line, Load, MatmulRegion


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: loads and lines, the axis of (b, across, k) that is contiguous, the most values read at a time."""

    side: str
    loads: tuple[Load, ...]
    lines: tuple[Line, ...]
    var: str
    across: str
    along_k: bool
    limit: int

    @property
    def axis(self) -> str:
        """The axis that neighbouring lanes read along."""
        return "k" if self.along_k else self.across

    @property
    def copied(self) -> bool:
        """Whether it is a tensor as it lies in memory, so that it can be copied past the registers."""
        if len(self.loads) != 1 or self.lines or self.loads[0].var != self.var:
            return False
        load = self.loads[0]
        return load.address is not None and load.predicate is None and load.dtype == "float32"

    def copy_width(self, vector: int) -> int:
        """Floats of one asynchronous copy; a transposed operand changes lines with every float."""
        return 1 if self.along_k else min(vector, self.limit)


@lru_cache(maxsize=1024)
def operand_of(region: MatmulRegion, side: str) -> Operand:
    """The left operand (`a`) or the right one (`b`)."""
    loads, lines, var, across, size = (
        (region.a_loads, region.a_lines, region.a_var, "m", region.m)
        if side == "a"
        else (region.b_loads, region.b_lines, region.b_var, "n", region.n)
    )
    addressed = [load for load in loads if load.address is not None]
    streamed = max(addressed, key=lambda load: load.numel, default=None)
    along_k = streamed is not None and streamed.address is not None and streamed.address.stride("k") == 1
    axis, length = ("k", region.k) if along_k else (across, size)
    limit = 4
    while limit > 1 and (length % limit or not is_wide(streamed, axis, limit)):
        limit //= 2
    return Operand(side, loads, lines, var, across, along_k, limit)


def is_wide(load: Load | None, axis: str, width: int) -> bool:
    """Whether `width` elements along the axis may be read in one access."""
    if load is None or load.address is None or load.predicate is not None:
        return False
    return divisible(load.address, axis, width)
