"""Python's own parser, kept from a fault of CPython."""

from __future__ import annotations

import ast
import gc


def parsed(text: str, filename: str = "<unknown>") -> ast.Module:
    """As `ast.parse`, without a garbage collection in between: a finalizer that fails then has its traceback formatted,
    for which CPython 3.11 parses as well, and the outer parse ends with SystemError (its depth is counted once for an
    interpreter, gh-106905)."""
    before = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, filename)
    finally:
        if before:
            gc.enable()
