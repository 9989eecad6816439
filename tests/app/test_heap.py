"""Garbage collection in long-lived processes: what was imported is left alone, what comes later is still collected."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import gc, weakref
from warpsmith.app.heap import collect_rarely, settle

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

collect_rarely()
kept = [Node() for _ in range(5000)]
early = cycle()
settle()
assert early() is None
assert len(gc.get_objects()) < 2000, "what was there is still looked through"
late = [cycle() for _ in range(30_000)]
assert sum(ref() is None for ref in late) > 10_000, "cycles are kept for ever"
assert len(kept) == 5000
"""


def test_what_was_there_is_left_alone_and_later_cycles_are_collected() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
