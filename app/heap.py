"""How Python's garbage collector works in processes that plan and search: rarely, and not through what stays anyway."""

from __future__ import annotations

import gc

_YOUNG = 10_000
"""New objects after which the youngest are looked through. Python's 700 is made for other heaps: torch brings some
400,000 objects, and a pass through all of them takes 0.2 to 0.4 s, which was a fifth of what a small problem costs the
host. Traces leave cycles behind, so that never would be too rare; this costs about 10 MB."""


def collect_rarely() -> None:
    """For the beginning of a process of ours; a program that calls us keeps its own habits."""
    gc.set_threshold(_YOUNG, 10, 10)


def settle() -> None:
    """What is there now is not looked through again: for a process that has made its imports and goes on for long."""
    gc.collect()
    gc.freeze()
