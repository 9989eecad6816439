"""Composite: a graph as several parts in order, own kernels and library calls, joined by scratch buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels.device import Unit
from warpsmith.kernels.hashed import HashKept, hash_kept
from warpsmith.kernels.records import Buffer, LibraryStep, View
from warpsmith.kernels.region import OneRegion


@dataclass(frozen=True, slots=True)
class KernelPart:
    """One use of a kernel: `kernel` numbers it among the composite's, `binding` says which tensor of the plan stands
    for each of its region's."""

    kernel: int
    binding: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    """Names of the graph's nodes that it computes."""
    load_time: bool = False
    """Whether it reads parameters alone and is run once, when they are loaded."""


@dataclass(frozen=True, slots=True)
class Convolved:
    """What decides how fast a library convolves."""

    dtype: str
    channels: int
    """That one result sums over."""
    results: int
    """Channels that are made of those: of one group."""
    groups: int
    positions: int
    """Of the results, over the whole batch."""
    dims: int
    pointwise: bool
    """One tap at each position: a matrix product in either layout."""
    transposed: bool
    strided: bool
    """Whether some stride is more than 1."""
    dilated: bool
    wide: bool
    """Five taps or more in a dimension with a stride."""
    channels_last: bool
    """Whether operands and result lie so."""
    turned_bytes: int
    """Of input and result, once each."""


@dataclass(frozen=True, slots=True)
class LibraryPart:
    """One call of a library, with what it takes at least."""

    step: LibraryStep
    flops: int
    bytes_moved: int
    convolved: Convolved | None = None
    """Of a convolution."""
    copied: int = 0
    """Bytes of the result, where it has to be copied into its place."""
    left: bool = False
    """Whether that is only so where outputs have a place: a caller is given what the library has made."""
    laid_out: tuple[str, ...] = ()
    """Names of the graph's nodes that are a parameter in another layout: it is run once, when parameters are loaded."""

    @property
    def load_time(self) -> bool:
        """Whether it is run once, before everything else."""
        return bool(self.laid_out)


Part = KernelPart | LibraryPart


Layout = Literal["contiguous", "channels_last"]


@hash_kept
@dataclass(frozen=True, slots=True)
class Kernel(HashKept):
    """A region that one or more parts compute, its tensors called in0, in1, ... and out0, ..."""

    region: OneRegion
    family: str
    tunable: bool
    """Whether its slots are open; the slots of kernels that hardly matter keep the family's prior."""


@dataclass(frozen=True, slots=True)
class Composite:
    """What takes the place of a region where one does not do."""

    kernels: tuple[Kernel, ...]
    parts: tuple[Part, ...]
    buffers: tuple[tuple[str, Buffer], ...]
    views: tuple[tuple[str, View], ...]
    flops: int
    floor_bytes: int
    flops_by_unit: tuple[tuple[Unit, int], ...] = ()
    """The same operations, by what may do them."""
    source_ops: tuple[str, ...] = ()
    input_bytes: tuple[int, ...] = ()
    """Of each tensor that is an input of the whole, not a parameter."""
    output_bytes: tuple[int, ...] = ()
    layout: Layout = "contiguous"
    """Of what lies between convolutions of a library, and of their weights."""
    products: tuple[str, ...] = ()
    """Names of the graph's products that own kernels compute, in place of a library."""

    @property
    def cuts(self) -> tuple[tuple[str, ...], ...]:
        """The graph's nodes that each own kernel or copy makes, in order: the same cuts make the same parts at other
        sizes."""
        made = (part.outputs if isinstance(part, KernelPart) else part.laid_out for part in self.parts)
        return tuple(names for names in made if names)


AnyRegion = OneRegion | Composite
"""What a family may be asked to compute."""
