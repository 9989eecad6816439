"""A check that a kernel broke, with the place where it did."""

from __future__ import annotations


class Violation(Exception):
    """Ends a launch. `row` is the block within the batch; -1 where no single lane is to blame."""

    def __init__(self, kind: str, message: str, *, site: int = -1, row: int = -1, thread: int = -1) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message
        self.site, self.row, self.thread = site, row, thread
