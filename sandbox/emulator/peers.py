"""Shared memory of a cluster's other blocks: it must exist from the first access of a peer to the last.

A block may touch a peer's memory only once it knows that the peer runs, and the peer may end only once it knows that
nobody will touch its memory any more. Cluster barriers tell both. A kernel that waits in loops may know it from
elsewhere; there only accesses to the memory of a block that has ended are found.
"""

from __future__ import annotations

import numpy as np

from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.vectors import Array
from warpsmith.sandbox.emulator.violations import Violation


class Peers:
    """The blocks of one batch: which have ended, which have met their cluster, whose memory is in use by others."""

    def __init__(self, blocks: int, *, waits_otherwise: bool) -> None:
        self.waits_otherwise = waits_otherwise
        self.ended = np.zeros(blocks, np.bool_)
        self.met = np.zeros(blocks, np.bool_)
        self.used_at = np.full(blocks, -1, np.int64)
        """Site of an access by a peer since the last cluster barrier; -1: none."""

    def touch(self, request: Request, rows: Array) -> None:
        """Lanes access the shared memory of `rows` of the batch. Raises Violation."""
        own = np.broadcast_to(request.rows, np.broadcast_shapes(rows.shape, request.base.shape))
        rows = np.broadcast_to(rows, own.shape)
        away = rows != own
        if not away.any():
            return
        late = away & self.ended[rows]
        if late.any():
            request.fail("race", late, "touches shared memory of a block of its cluster that has ended")
        if self.waits_otherwise:
            return
        early = away & ~self.met[own]
        if early.any():
            what = (
                "touches shared memory of a block of its cluster that need not have started: no cluster barrier before"
            )
            request.fail("race", early, what)
        self.used_at[rows[away]] = request.site

    def meet(self, rows: Array) -> None:
        """Blocks passed a cluster barrier."""
        self.met[rows] = True
        self.used_at[rows] = -1

    def end(self, rows: Array) -> None:
        """Blocks have no thread any more. Raises Violation."""
        early = rows[self.used_at[rows] >= 0]
        if len(early):
            row = int(early[0])
            what = "a block ends while another of its cluster may still use its shared memory: no cluster barrier after"
            raise Violation("race", what, site=int(self.used_at[row]), row=row, thread=0)
        self.ended[rows] = True
