"""An operand: a name that a launch plan may use for a problem, and what stands behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

NUMBERS = ("Python int", "Python float", "Python bool")
"""`Operand.dtype` of what is no tensor."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A name that a launch plan may use, and what stands behind it."""

    name: str
    """`inN`, `outN` or `param:NAME`."""
    dtype: str
    """A tensor's dtype, or one of `NUMBERS`."""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    """In elements."""

    @property
    def scalar(self) -> bool:
        """Whether it is a Python number, which kernels take by value."""
        return self.dtype in NUMBERS

    @property
    def numel(self) -> int:
        """Elements; 1 for a number."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; 0 for a number."""
        return 0 if self.scalar else self.numel * int(getattr(torch, self.dtype).itemsize)
