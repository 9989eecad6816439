"""Finds instructions through which the order of threads may show in a right result: atomics that do not commute.

Sums of floats are rounded differently in another order, and whoever is handed what lay in a cell before (a ticket, a
lock, a place in a list) learns who came first. Whole numbers that are only added up come out the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from warpsmith.tools.rules.ptx_text import Function, Ptx, PtxFlaw, Statement, names

_FLOAT = re.compile(r"\.(?:noftz\.)?(?:b?f16|b?f16x2|f32|f64|e4m3x4|e5m2x4)\b")
_COMMUTES = re.compile(r"\.(?:min|max|and|or|xor|inc|dec)\b")
_REDUCES = ("red", "multimem")


def order_may_show(text: str, kernels: Collection[str]) -> bool:
    """Whether one of these kernels, or a device function beside them, holds such an instruction."""
    try:
        module = Ptx(text)
        return any(
            _shows(module, function) for function in module.functions if not function.entry or function.name in kernels
        )
    except PtxFlaw:
        return False


def _shows(module: Ptx, function: Function) -> bool:
    used: dict[str, int] = {}
    tickets: list[str] = []
    for statement in module.statements(function):
        for name in (statement.guard, *names(statement.operands)):
            used[name] = used.get(name, 0) + 1
        if _is_float_sum(statement):
            return True
        if statement.opcode == "atom":
            tickets += names(statement.operands.partition("[")[0])
    # Twice: where it is assigned, and where it is read.
    return any(used[name] > 1 for name in tickets)


def _is_float_sum(statement: Statement) -> bool:
    bulk = statement.opcode == "cp" and ".reduce" in statement.modifiers
    if statement.opcode != "atom" and statement.opcode not in _REDUCES and not bulk:
        return False
    return bool(_FLOAT.search(statement.modifiers)) and not _COMMUTES.search(statement.modifiers)
