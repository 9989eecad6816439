"""What a model decided while it wrote a reply: kept with the reply, so that training needs no second guess."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.local.grammar import Kind
from warpsmith.kernels.records import Record

SCHEMA = 1

_LISTED = 64
"""Tokens up to which a set is a list; larger ones are bit maps."""


class AllowedSet(Record):
    """Tokens that a position allowed, as a list or, base64, as bits in the order of the ids, lowest bit first."""

    listed: tuple[int, ...] | None = None
    bits: str | None = None

    @classmethod
    def of(cls, ids: NDArray[np.int64]) -> AllowedSet:
        """From ascending ids."""
        if len(ids) <= _LISTED:
            return cls(listed=tuple(int(i) for i in ids))
        mask = np.zeros(int(ids[-1]) + 1, dtype=bool)
        mask[ids] = True
        return cls(bits=base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode())

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ascending."""
        if self.bits is None:
            return np.array(self.listed or (), dtype=np.int64)
        packed = np.frombuffer(base64.b64decode(self.bits), dtype=np.uint8)
        return np.flatnonzero(np.unpackbits(packed, bitorder="little")).astype(np.int64)


class Span(Record):
    """Neighbouring tokens of one field and one kind."""

    field: str
    """Path in the reply, as `threads` or `steps.0.grid`."""
    kind: Kind
    start: int
    """Index into the completion."""
    stop: int


class Decisions(Record):
    """The tokens of one reply. All sequences but `sets` and `spans` have one entry a token of the completion."""

    format: int = SCHEMA
    model: str
    """Fingerprint of the weights, and the adapters' version where there is one."""
    dtype: str
    temperature: float
    explore: float = 0.0
    """Share of the uniform distribution over the allowed tokens that was mixed into choices between values."""
    seed: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    forced: tuple[bool, ...]
    """Tokens that had no alternative; they carry no gradient."""
    sets: tuple[AllowedSet, ...]
    allowed: tuple[int, ...]
    """Index into `sets`; -1 for forced tokens."""
    logprobs: tuple[float, ...]
    """Natural logarithm, at this temperature and with this exploration, over the allowed tokens alone; 0 for forced
    ones. The distribution that the tokens were drawn from."""
    spans: tuple[Span, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Of each token."""
        return tuple(span.kind for span in self.spans for _ in range(span.stop - span.start))

    @property
    def total(self) -> float:
        """Log-probability of the whole reply under the grammar."""
        return float(sum(self.logprobs))

    def packed(self) -> bytes:
        """As it is stored; the same decisions give the same bytes."""
        return gzip.compress(self.model_dump_json().encode(), mtime=0)

    @classmethod
    def unpacked(cls, data: bytes) -> Decisions:
        """From `packed`."""
        return cls.model_validate_json(gzip.decompress(data))


def spans_of(marks: Sequence[tuple[str, Kind]]) -> tuple[Span, ...]:
    """Field and kind of each token, as spans."""
    found: list[Span] = []
    for at, (field, kind) in enumerate(marks):
        if found and (found[-1].field, found[-1].kind) == (field, kind):
            found[-1] = found[-1].model_copy(update={"stop": at + 1})
        else:
            found.append(Span(field=field, kind=kind, start=at, stop=at + 1))
    return tuple(found)
