"""Tables whose keys are large: a region holds some hundred records, and its hash asks each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class HashKept:
    """Base of a frozen dataclass with slots, decorated with `hash_kept`: room for its hash. That is no field: it is
    neither compared nor copied nor pickled, as hashes of text differ from process to process."""

    __slots__ = ("_hash",)
    _hash: int


def hash_kept(kind: type[T]) -> type[T]:
    """The class with its hash worked out once an object. It must be immutable through and through."""
    if not issubclass(kind, HashKept):
        raise TypeError(f"{kind.__name__} has no room for its hash: let it inherit HashKept")
    worked_out: Any = kind.__hash__

    def kept(self: Any) -> int:
        try:
            return int(self._hash)
        except AttributeError:
            found = int(worked_out(self))
            object.__setattr__(self, "_hash", found)
            return found

    kind.__hash__ = kept  # type: ignore[method-assign]
    return kind


class ByObject(Generic[K, T]):
    """Results for immutable objects that cannot be hashed, by which object it is. Of the last `most` at least half are
    kept, and their objects with them."""

    def __init__(self, make: Callable[[K], T], *, most: int = 256) -> None:
        self._make = make
        self._most = most
        self._known: dict[int, tuple[K, T]] = {}

    def of(self, one: K) -> T:
        """The result for an object, made at the first call."""
        found = self._known.get(id(one))
        if found is None:
            if len(self._known) >= self._most:
                self._known = dict(list(self._known.items())[self._most // 2 :])
            found = self._known[id(one)] = one, self._make(one)
        return found[1]
