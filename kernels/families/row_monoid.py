"""Partial results of one sweep over the reduced axes: members, identity, accumulation and combination."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpsmith.kernels import codegen
from warpsmith.kernels.region import Line, Reduction, Region

_DIFFERENCE = re.compile(r"^\(*(\w+)\)* - \(*(\w+)\)*$")
_GUARDED = re.compile(r"^fabsf\((\w+)\) == __int_as_float\(0x7f800000\) \? 0\.0f : (\w+)$")
_SCALED = re.compile(r"^\(*(\w+)\)* ([*/]) \(*([0-9.eE+-]+)f?\)*$")


@dataclass(frozen=True, slots=True)
class Member:
    """One scalar of a partial result."""

    name: str
    ctype: str
    identity: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Monoid:
    """What one sweep accumulates: the product of its reductions, or a fused pair of rounds.

    `accumulate` works on `p` (the partial), the operands by name and `position` (flattened reduced index);
    `combine` folds partial `b` into `a`. `results` are `(ctype, variable, text over folded_)`.
    """

    members: tuple[Member, ...]
    operands: tuple[tuple[str, str], ...]
    """(variable, C type) of the per-point values that go in."""
    accumulate: str
    combine: str
    results: tuple[tuple[str, str, str], ...]
    special_ops: int = 0
    """exp and division per accumulated point."""
    flops: int = 1

    @property
    def bytes(self) -> int:
        """Upper bound of the size of the struct: every member and the end at a multiple of its alignment."""
        sizes = [member.bytes for member in self.members]
        end = 0
        for size in sizes:
            end = _round_up(end, min(8, size)) + size
        return _round_up(end, min(8, max(sizes)))


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def product_monoid(reductions: tuple[Reduction, ...], types: Mapping[str, str], position_ctype: str) -> Monoid:
    """All reductions of a round side by side; `types` maps operand variables to C types."""
    parts = [_single(reduction, types[reduction.operand], position_ctype) for reduction in reductions]
    return Monoid(
        members=tuple(member for part in parts for member in part.members),
        operands=tuple(dict.fromkeys(operand for part in parts for operand in part.operands)),
        accumulate="\n".join(part.accumulate for part in parts),
        combine="\n".join(part.combine for part in parts),
        results=tuple(result for part in parts for result in part.results),
        flops=sum(part.flops for part in parts),
    )


def _single(reduction: Reduction, operand_ctype: str, position_ctype: str) -> Monoid:
    # Truth values are held as integers: the compiler loads neighbouring bytes as a word, with unwritten padding.
    algebra = codegen.monoid(reduction, position_ctype, operand_ctype)
    name, operand = f"{reduction.var}_", reduction.operand
    held = "int" if codegen.result_ctype(reduction) == "bool" else f"{algebra}::State"
    state = Member(name, held, f"{algebra}::identity()", max(4, codegen.state_bytes(reduction)))
    return Monoid(
        members=(state,),
        operands=((operand, operand_ctype),),
        accumulate=f"p.{name} = {algebra}::combine(p.{name}, {algebra}::lift({operand}, position));",
        combine=f"a.{name} = {algebra}::combine(a.{name}, b.{name});",
        results=((codegen.result_ctype(reduction), reduction.var, f"{algebra}::result(folded_.{name})"),),
        flops=3 if codegen.is_arg(reduction) else 1,
    )


def fused_pair(region: Region) -> Monoid | None:
    """One sweep that does the work of the first two rounds, where their structure allows it.

    Two identities are known: (max of v, sum of exp(v - max)) with rescaling (Milakov and Gimelshein 2018),
    and (sum of v, sum of squared deviations from its mean) by Welford's update and Chan's combination.
    """
    if len(region.rounds) < 2:
        return None
    first, second = region.rounds[0].reductions, region.rounds[1].reductions
    if len(first) != 1 or len(second) != 1 or second[0].kind != "sum":
        return None
    if first[0].ctype != second[0].ctype or first[0].ctype not in ("float", "double"):
        return None
    structure = _Structure(region)
    if first[0].kind == "max" and (exp := structure.exp_of_difference(first[0], second[0])):
        return _online_exp(first[0], second[0], *exp)
    if first[0].kind == "sum" and structure.squared_deviation(first[0], second[0]):
        return _moments(first[0], second[0])
    return None


class _Structure:
    """Looks at what lines compute, whatever their variables are called."""

    def __init__(self, region: Region) -> None:
        self.lines = {line.var: line for part in region.rounds for line in (*part.lines, *part.finish)}
        self.size = region.reduced_size

    def expand(self, var: str) -> str:
        """The whole expression of a variable down to loads and reductions."""
        line = self.lines.get(var)
        if line is None:
            return var
        found = line.text
        for used in line.uses:
            found = re.sub(rf"\b{re.escape(used)}\b", lambda _, u=used: f"({self.expand(u)})", found)  # type: ignore[misc]
        return found

    def minus(self, text: str) -> tuple[str, str] | None:
        """(a, b) if the text, or the line of the variable it names, is `a - b`."""
        line = self.lines.get(text.strip("() "))
        found = _DIFFERENCE.match(line.text if line else text)
        return (found[1], found[2]) if found else None

    def exp_of_difference(self, top: Reduction, total: Reduction) -> tuple[str, bool] | None:
        """(exp function, whether an infinite maximum counts as 0) if the sum's operand is exp(v - max v)."""
        line = self.lines.get(total.operand)
        found = re.match(r"^(exp|expf|__expf)\((.*)\)$", line.text) if line else None
        pair = self.minus(found[2]) if found else None
        if found is None or pair is None or self.expand(pair[0]) != self.expand(top.operand):
            return None
        if pair[1] == top.var:
            return found[1], False
        shift = self.lines.get(pair[1])
        guarded = _GUARDED.match(shift.text) if shift else None
        return (found[1], True) if guarded and guarded[1] == guarded[2] == top.var else None

    def squared_deviation(self, total: Reduction, squares: Reduction) -> bool:
        """Whether the second sum's operand is (v - mean of v) squared."""
        line = self.lines.get(squares.operand)
        base = _squared(line) if line else None
        pair = self.minus(base) if base else None
        if pair is None or self.expand(pair[0]) != self.expand(total.operand):
            return False
        mean = self.lines.get(pair[1])
        found = _SCALED.match(mean.text) if mean else None
        if found is None or found[1] != total.var:
            return False
        factor = float(found[3]) if found[2] == "/" else 1.0 / float(found[3])
        return abs(factor - self.size) <= 1e-5 * self.size


def _squared(line: Line) -> str | None:
    found = re.match(r"^\(*(\w+)\)* \* \(*(\w+)\)*$", line.text)
    if found and found[1] == found[2]:
        return found[1]
    power = re.match(r"^powf?\((\w+), 2(?:\.0*)?f?\)$", line.text)
    return power[1] if power else None


def _online_exp(top: Reduction, total: Reduction, exp: str, guarded: bool) -> Monoid:
    ctype, x = top.ctype, top.operand
    m, s = f"{top.var}_", f"{total.var}_"
    one, zero = ("1.0f", "0.0f") if ctype == "float" else ("1.0", "0.0")
    width = 4 if ctype == "float" else 8
    absolute = "fabsf" if ctype == "float" else "fabs"
    accumulate = "\n".join((
        "{",
        f"  const {ctype} step = ({x} == p.{m}) ? {zero} : {x} - p.{m};",
        f"  const {ctype} scale = {exp}(-{absolute}(step));",
        f"  p.{s} = step > {zero} ? p.{s} * scale + {one} : p.{s} + scale;",
        f"  p.{m} = (step > {zero} || {x} != {x}) ? {x} : p.{m};",
        "}",
    ))  # fmt: skip
    combine = "\n".join((
        "{",
        f"  const {ctype} top = (b.{m} > a.{m} || b.{m} != b.{m}) ? b.{m} : a.{m};",
        f"  const {ctype} scale_a = (a.{m} == top) ? {one} : {exp}(a.{m} - top);",
        f"  const {ctype} scale_b = (b.{m} == top) ? {one} : {exp}(b.{m} - top);",
        f"  a.{s} = a.{s} * scale_a + b.{s} * scale_b;",
        f"  a.{m} = top;",
        "}",
    ))  # fmt: skip
    # Where the maximum is infinite or NaN the sum is what two rounds would have found: exp(v - max) is NaN at
    # the maximum, and adding max - max says so; with an infinite maximum taken as 0 the sum is exp(max).
    result = f"folded_.{s} + (folded_.{m} - folded_.{m})"
    if guarded:
        result = f"{absolute}(folded_.{m}) == Limits<{ctype}>::high() ? {exp}(folded_.{m}) : folded_.{s}"
    return Monoid(
        members=(Member(m, ctype, f"Limits<{ctype}>::low()", width), Member(s, ctype, zero, width)),
        operands=((x, ctype),),
        accumulate=accumulate,
        combine=combine,
        results=((ctype, top.var, f"folded_.{m}"), (ctype, total.var, result)),
        special_ops=1,
        flops=5,
    )


def _moments(total: Reduction, squares: Reduction) -> Monoid:
    ctype, x = total.ctype, total.operand
    s, n, mean, m2 = f"{total.var}_", f"{squares.var}_n", f"{squares.var}_mean", f"{squares.var}_"
    zero, one = ("0.0f", "1.0f") if ctype == "float" else ("0.0", "1.0")
    width = 4 if ctype == "float" else 8
    quotient = "__fdividef(off, p.{n})" if ctype == "float" else "off / p.{n}"
    accumulate = "\n".join((
        "{",
        f"  p.{s} += {x};",
        f"  p.{n} += {one};",
        f"  const {ctype} off = {x} - p.{mean};",
        f"  p.{mean} += {quotient.format(n=n)};",
        f"  p.{m2} += off * ({x} - p.{mean});",
        "}",
    ))  # fmt: skip
    combine = "\n".join((
        "{",
        f"  const {ctype} count = a.{n} + b.{n};",
        f"  const {ctype} share = count > {zero} ? b.{n} / count : {zero};",
        f"  const {ctype} off = b.{mean} - a.{mean};",
        f"  a.{mean} += off * share;",
        f"  a.{m2} += b.{m2} + off * off * a.{n} * share;",
        f"  a.{s} += b.{s};",
        f"  a.{n} = count;",
        "}",
    ))  # fmt: skip
    return Monoid(
        members=tuple(Member(name, ctype, zero, width) for name in (s, n, mean, m2)),
        operands=((x, ctype),),
        accumulate=accumulate,
        combine=combine,
        results=((ctype, total.var, f"folded_.{s}"), (ctype, squares.var, f"folded_.{m2}")),
        special_ops=1,
        flops=6,
    )
