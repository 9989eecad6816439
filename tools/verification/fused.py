"""Judging's walks over results and over memory as one kernel each, where there is a GPU; fused.cu has the kernels.

What they give is defined by the torch code in compare.py, checksums.py and sealed.py, which is what runs elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.cuda.own import LOAD_ERRORS, Given, OwnKernels

SOURCE = Path(__file__).with_name("fused.cu")
OPTIONS = ("--fmad=false",)
ELEMENTS = {
    torch.float64: "double", torch.float32: "float", torch.float16: "half_bits", torch.bfloat16: "brain_bits",
}  # fmt: skip
"""Dtypes of results that kernels take, as the source calls them."""
_THREADS = 256
_EACH = 4
"""Elements that a thread has on the way at once."""
_BLOCKS_EACH = 8
"""Blocks a multiprocessor."""


class Launcher(Protocol):
    """Enqueues kernels of one module."""

    def launch(self, name: str, *, blocks: int, threads: int, arguments: Sequence[Given]) -> None:
        """As `OwnKernels.launch`."""


Load = Callable[[str, Sequence[str]], Launcher]
"""Makes a module of a source and the compiler's options."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Aligned flat parts of a reference and of a result, contiguous and on one device."""

    truth: torch.Tensor
    """float64, or the words of a sealed tensor of float64."""
    value: torch.Tensor
    key: int | None = None
    """Of the sealed words' key stream."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is counted; `_errors` in compare.py has the meaning."""

    bounds: tuple[float, float] | None
    """Absolute and relative."""
    smallest: float | None
    miss: float | None
    least: float
    faint: float
    """Errors above this are gross where an element is missed."""


class Fused:
    """The kernels on one device. All are enqueued on the current stream; each method but `seal` waits once."""

    def __init__(self, load: Load, most_blocks: int) -> None:
        """`most_blocks`: as many as run at once, about. Raises one of `LOAD_ERRORS`, as `takes` does."""
        source = SOURCE.read_text()
        self._most = most_blocks
        self._memory = load(source, OPTIONS)
        self._walks = cache(lambda dtype: load(source, (*OPTIONS, f"-DELEMENT={ELEMENTS[dtype]}")))

    def takes(self, truth: torch.dtype, value: torch.dtype) -> bool:
        """Whether there are kernels for a result of this dtype; makes them."""
        if truth is not torch.float64 or value not in ELEMENTS:
            return False
        self._walks(value)
        return True

    def measure(self, pieces: Iterable[Piece], dtype: torch.dtype) -> list[float]:
        """Of references rounded to `dtype`: sum of squares, sum of squared units in the last place, the largest of
        those, number of elements that are not finite."""
        return self._walk("measure", pieces, dtype, 4, (2,), ())

    def errors(self, pieces: Iterable[Piece], dtype: torch.dtype, rule: Rule) -> list[float]:
        """The fields of `_Errors` in compare.py, in their order."""
        absolute, relative = rule.bounds or (0.0, 0.0)
        reals = (absolute, relative, rule.smallest or 0.0, rule.miss or 0.0, rule.least, rule.faint)
        asked = (rule.bounds is not None, rule.smallest is not None, rule.miss is not None)
        more: list[Given] = [*map(np.float64, reals), *map(np.int32, asked)]
        return self._walk("errors", pieces, dtype, 8, (1, 5), more)

    def _walk(
        self, name: str, pieces: Iterable[Piece], dtype: torch.dtype, columns: int, largest: tuple[int, ...],
        more: Sequence[Given],
    ) -> list[float]:  # fmt: skip
        about, rows = torch.finfo(dtype), None
        for piece in pieces:
            if rows is None:
                rows = torch.zeros(self._most, columns, dtype=torch.float64, device=piece.value.device)
            count = piece.value.numel()
            arguments = (
                piece.truth, np.int32(piece.key is not None), np.uint64(piece.key or 0), piece.value, np.uint64(count),
                rows, np.float64(about.smallest_normal), np.float64(about.eps), *more,
            )  # fmt: skip
            self._launch(self._walks(dtype), name, count, arguments)
        if rows is None:
            return [0.0] * columns
        found = rows.cpu()
        highest = found.max(0).values.tolist()
        return [highest[n] if n in largest else total for n, total in enumerate(found.sum(0).tolist())]

    def seal(self, words: torch.Tensor, first: int, key: int) -> None:
        """Turns words (int64, contiguous) that `first` others come before into noise, or back, in place."""
        arguments = (words, np.uint64(words.numel()), np.uint64(first), np.uint64(key))
        self._launch(self._memory, "seal", words.numel(), arguments)

    def checksum(self, raw: torch.Tensor, whole: int, keys: tuple[int, int, int]) -> tuple[int, int]:
        """`checksums.checksum` of a flat uint8 tensor, of which `whole` bytes are taken as words of four."""
        total, weighted = self._memory_sums("checksum", raw, whole, 2, keys)
        return total, weighted

    def digest(self, raw: torch.Tensor, whole: int, key: int) -> int:
        """`checksums.digest` of a flat uint8 tensor."""
        return self._memory_sums("digest", raw, whole, 1, (key,))[0]

    def _memory_sums(self, name: str, raw: torch.Tensor, whole: int, columns: int, keys: tuple[int, ...]) -> list[int]:
        rows = torch.zeros(self._most, columns, dtype=torch.int64, device=raw.device)
        sizes = np.uint64(whole // 4), np.uint64(raw.numel() - whole)
        arguments: list[Given] = [raw, *sizes, rows, *map(np.uint64, keys)]
        self._launch(self._memory, name, raw.numel(), arguments)
        return [total % 2**64 for total in rows.cpu().sum(0).tolist()]

    def _launch(self, module: Launcher, name: str, count: int, arguments: Sequence[Given]) -> None:
        blocks = min(self._most, -(-count // (_THREADS * _EACH)))
        if blocks:
            module.launch(name, blocks=blocks, threads=_THREADS, arguments=arguments)


_fused: dict[str, Fused | None] = {"cpu": None}
"""By type of device: a process judges on one device of a type."""
_untold: list[str] = []


def fused_on(device: torch.device, *dtypes: torch.dtype) -> Fused | None:
    """The kernels for a device; None where torch does it instead: on a CPU, for dtypes (of a reference and of a result)
    that there are no kernels for, and, as `untold` tells, where they cannot be made."""
    try:
        if device.type not in _fused:
            _fused[device.type] = _on_gpu(device) if device.type == "cuda" else None
        kernels = _fused[device.type]
        return kernels if kernels is not None and (not dtypes or kernels.takes(*dtypes)) else None
    except (*LOAD_ERRORS, UserError) as error:
        _fused[device.type] = None
        _untold.append(f"results are compared by torch, which takes longer, as our kernels do not load: {error}")
        return None


def untold() -> list[str]:
    """Why kernels do not load, once in a process."""
    told = list(_untold)
    _untold.clear()
    return told


def _on_gpu(device: torch.device) -> Fused:
    blocks = _BLOCKS_EACH * torch.cuda.get_device_properties(device).multi_processor_count
    return Fused(lambda source, options: OwnKernels(source, options, device), blocks)


@contextlib.contextmanager
def using(kind: str, kernels: Fused | None) -> Iterator[None]:
    """Inside, these kernels, or torch, are what works on devices of a type."""
    before = {kind: _fused[kind]} if kind in _fused else {}
    _fused[kind] = kernels
    try:
        yield
    finally:
        del _fused[kind]
        _fused.update(before)
