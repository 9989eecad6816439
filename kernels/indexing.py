"""Index expressions: affine sums over axes with exact floor division and modulo, kept in a normal form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """`coefficient * ((axis / div) % mod)`, with `mod` None where no modulo is needed."""

    axis: str
    coefficient: int
    div: int = 1
    mod: int | None = None


@dataclass(frozen=True, slots=True)
class Expr:
    """`offset + sum of terms`: integer valued; terms sorted, no zero coefficients."""

    terms: tuple[Term, ...] = ()
    offset: int = 0

    @property
    def axes(self) -> frozenset[str]:
        """Axes the value depends on."""
        return frozenset(term.axis for term in self.terms)

    def stride(self, axis: str) -> int | None:
        """Step per unit of `axis` if the value is affine in it (0 if independent), None if div/mod is involved."""
        step = 0
        for term in self.terms:
            if term.axis == axis:
                if term.div != 1 or term.mod is not None:
                    return None
                step += term.coefficient
        return step

    def c_text(self, ctype: str = "long long") -> str:
        """C++ text over axis variables, computed in `ctype`."""
        parts = []
        for term in self.terms:
            text = f"({ctype}){term.axis}"
            if term.div != 1:
                text = f"({text} / {term.div})"
            if term.mod is not None:
                text = f"({text} % {term.mod})"
            parts.append(text if term.coefficient == 1 else f"{text} * {term.coefficient}")
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)
