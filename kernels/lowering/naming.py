"""C++ text of values: variable names, operands filled into templates, axis expressions."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.lowering.values import Value
from warpsmith.kernels.region import Level, Line

_PREFIX = {"load": "x", "line": "v", "index": "i", "constant": "c", "reduce": "red"}


@dataclass(slots=True)
class Writer:
    """Names values in the order they are met: `x0` loads, `v0` lines, `i0` indices, `red0` reductions."""

    names: dict[int, str] = field(default_factory=dict)
    addresses: dict[int, Expr] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def name(self, value: Value, address: Expr | None) -> None:
        """Give a value its name; `address` is its index expression over the final axes."""
        prefix = _PREFIX[value.kind]
        count = self._counts.get(prefix, 0)
        self._counts[prefix] = count + 1
        self.names[value.id] = f"{prefix}{count}"
        if address is not None:
            self.addresses[value.id] = address

    def line(self, value: Value, level: Level, *, force: bool = False) -> Line | None:
        """The statement of a value; constants are written in place unless `force` asks for a variable."""
        name = self.names[value.id]
        if value.kind == "constant":
            return Line(name, value.ctype, value.template, level, (), 0) if force else None
        if value.kind == "index":
            text = self.addresses[value.id].c_text()
            return Line(name, value.ctype, text, level, (), 0, uses_axes=bool(self.addresses[value.id].axes))
        operands = [o.template if o.kind == "constant" else self.names[o.id] for o in value.operands]
        uses = tuple(dict.fromkeys(self.names[o.id] for o in value.operands if o.kind != "constant"))
        text = value.template.format(*operands)
        return Line(
            name, value.ctype, text, level, uses, value.flops, special=value.special, instructions=value.instructions
        )
