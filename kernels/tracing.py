"""Torch's tracing state is one a process, and no thread may see another's."""

from __future__ import annotations

import threading

ONE_AT_A_TIME = threading.RLock()
"""To be held while torch traces, or calls an operator that it computes by its own Python (on the meta device most do).
Seen without it: one thread removes the entry of `torch.fx.traceback` that another is about to remove (KeyError)."""
