"""What an operator table entry works with: operands of one node, conversions and line building."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.lowering.values import CType, Number, ReductionKind, Value, ValueTable

Operand = Value | Number
_RANK: dict[CType, int] = {"bool": 0, "int": 1, "long long": 2, "float": 3}


@dataclass(frozen=True, slots=True)
class Call:
    """One node being lowered at one index."""

    table: ValueTable
    out: CType
    """Compute type of the node's output, as torch's type promotion decided."""
    index: tuple[Expr, ...] = ()
    """Where in the node's output the value is wanted (for index-valued operators)."""
    exact: bool = False
    """Whether something that jumps (`floor`, a comparison) depends on it: quotients are then rounded as eager's."""
    fold: Callable[[ReductionKind, Value, CType], Value] | None = None
    """Reduces an operand over the reduced axes; set for reductions alone."""

    def to(self, operand: Operand, ctype: CType) -> Value:
        """The operand converted to `ctype`; a number becomes a literal."""
        if isinstance(operand, Value):
            return self.table.cast(operand, ctype)
        return self.table.constant(operand, ctype)

    def line(self, ctype: CType, text: str, *operands: Operand, flops: int = 1) -> Value:
        """A line over operands that already have the type they should have (numbers: the line's type)."""
        made = [o if isinstance(o, Value) else self.to(o, ctype) for o in operands]
        return self.table.line(ctype, text, *made, flops=flops)

    def floats(self, text: str, *operands: Operand, flops: int = 1) -> Value:
        """A float line; operands are converted to float first."""
        made = [self.to(operand, "float") for operand in operands]
        return self.table.line("float", text, *made, flops=flops)

    def typed(self, text: str, *operands: Operand, flops: int = 1) -> Value:
        """A line of the output's type; operands are converted to it first."""
        made = [self.to(operand, self.out) for operand in operands]
        return self.table.line(self.out, text, *made, flops=flops)

    def common(self, *operands: Operand) -> tuple[Value, ...]:
        """The operands in the type torch compares them in: tensors decide, a number only lifts the kind."""
        tensors = [operand.ctype for operand in operands if isinstance(operand, Value)]
        ctype: CType = max(tensors, key=_RANK.__getitem__, default="bool")
        for operand in operands:
            if isinstance(operand, float):
                ctype = "float"
            elif isinstance(operand, int) and not isinstance(operand, bool) and ctype == "bool":
                ctype = "long long"
        return tuple(self.to(operand, ctype) for operand in operands)

    def reduce(self, kind: ReductionKind, operand: Value, ctype: CType) -> Value:
        """Reduce over the reduced axes."""
        assert self.fold is not None
        return self.fold(kind, operand, ctype)
