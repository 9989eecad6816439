"""Where candidates run."""

from __future__ import annotations

from typing import Literal

from warpsmith.kernels.records import Record


class Target(Record):
    """A GPU, or the emulator of an architecture on the CPU."""

    kind: Literal["gpu", "cpu"]
    arch: str
    index: int = 0
    """Which GPU, in the order that CUDA_VISIBLE_DEVICES leaves."""
    backend: str | None = None
    """`module:function` below `warpsmith` that makes the backend; None: what `kind` stands for."""
