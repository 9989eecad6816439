"""Emitters of floating-point opcodes: float32, float64, f16 and bf16, alone and packed."""

from __future__ import annotations

from warpsmith.sandbox.emulator import floats
from warpsmith.sandbox.emulator.emitter import Emitter
from warpsmith.sandbox.emulator.ops_int import (
    INTS,
    integer_extreme,
    integer_multiply_add,
    integer_product,
    integer_quotient,
    integer_sign,
    integer_sum,
)
from warpsmith.sandbox.emulator.ptx import Instr
from warpsmith.sandbox.emulator.table import marks, opcode

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_ROUND = ("rn", "rz", "rm", "rp")
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_APPROXIMATE = {"ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos", "tanh": "tanh", "rsqrt": "rsqrt"}


def flushed(c: Emitter, instr: Instr, *names: str) -> list[str]:
    """Operands with subnormals flushed where the instruction says `.ftz`."""
    if "ftz" not in instr.parts:
        return list(names)
    return [c.fresh(f"{c.helper('flush', floats.flush)}({name})") for name in names]


def finish_float(c: Emitter, instr: Instr, text: str, kind: str) -> None:
    """Apply `.ftz` and `.sat` to a result and write it."""
    if "ftz" in instr.parts and kind == "f32":
        text = f"{c.helper('flush', floats.flush)}({text})"
    if "sat" in instr.parts:
        text = f"{c.helper('saturate', floats.saturate)}({text})"
    c.write(instr.operands[0], kind, text)


def _half(c: Emitter, i: Instr, name: str, count: int) -> None:
    """An operation on f16 or bf16, packed or not."""
    kind = i.type.removesuffix("x2")
    found = tuple(sorted(set(i.parts[1:-1]) & {"ftz", "sat", "relu", "NaN"}))
    function = c.helper("_".join((name, kind, *found)), floats.half_operation(name, kind, found))
    operands = i.operands[1 : 1 + count]
    if i.type.endswith("x2"):
        arguments = ", ".join(c.read(operand, "u32") for operand in operands)
        c.write(i.operands[0], "u32", f"{c.helper('packed', floats.packed)}({function}, {arguments})")
    else:
        c.write(i.operands[0], "u16", f"{function}({', '.join(c.read(operand, 'u16') for operand in operands)})")


@opcode("add", "sub", "mul")
def _binary(c: Emitter, i: Instr) -> None:
    name = i.parts[0]
    if i.type in INTS:
        (integer_product if name == "mul" else integer_sum)(c, i)
    elif i.type in HALVES:
        marks(c, i, ("rn", "ftz", "sat"))
        _half(c, i, name, 2)
    elif i.type in ("f32", "f64"):
        middle = marks(c, i, (*_ROUND, "ftz", "sat"))
        a, b = flushed(c, i, *(c.read(operand, i.type) for operand in i.operands[1:]))
        finish_float(c, i, _rounded(c, name, middle, a, b), i.type)
    else:
        raise c.refuse()


def _rounded(c: Emitter, name: str, middle: tuple[str, ...], *operands: str) -> str:
    mode = next((part for part in middle if part in _ROUND), "rn")
    if mode == "rn":
        return f"{operands[0]} {_INFIX[name]} {operands[1]}"
    return f"{c.helper('directed', floats.directed)}({name!r}, {mode!r}, {', '.join(operands)})"


@opcode("fma", "mad")
def _multiply_add(c: Emitter, i: Instr) -> None:
    if i.type in INTS:
        integer_multiply_add(c, i)
        return
    if i.type in HALVES:
        marks(c, i, ("rn", "ftz", "sat", "relu"))
        _half(c, i, "fma", 3)
        return
    middle = marks(c, i, (*_ROUND, "ftz", "sat"), ("f32", "f64"))
    mode = next((part for part in middle if part in _ROUND), "rn")
    operands = flushed(c, i, *(c.read(operand, i.type) for operand in i.operands[1:]))
    if mode == "rn":
        name = "fma32" if i.type == "f32" else "fma64"
        text = f"{c.helper(name, getattr(floats, name))}({', '.join(operands)})"
    else:
        text = f"{c.helper('directed', floats.directed)}('fma', {mode!r}, {', '.join(operands)})"
    finish_float(c, i, text, i.type)


@opcode("div")
def _divide(c: Emitter, i: Instr) -> None:
    if i.type in INTS:
        integer_quotient(c, i)
        return
    middle = marks(c, i, (*_ROUND, "ftz", "approx", "full"), ("f32", "f64"))
    if i.type == "f64" and middle != ("rn",):
        raise c.refuse()
    a, b = flushed(c, i, *(c.read(operand, i.type) for operand in i.operands[1:]))
    finish_float(c, i, _rounded(c, "div", middle, a, b), i.type)


@opcode("rcp")
def _reciprocal(c: Emitter, i: Instr) -> None:
    middle = marks(c, i, (*_ROUND, "ftz", "approx"), ("f32", "f64"))
    operand = c.read(i.operands[1], i.type)
    if i.type == "f64":
        if middle == ("rn",):
            c.write(i.operands[0], "f64", f"1.0 / {operand}")
        elif middle == ("approx", "ftz"):
            c.write(i.operands[0], "f64", f"{c.helper('high_word', floats.high_word)}(1.0 / {operand})")
        else:
            raise c.refuse()
        return
    (operand,) = flushed(c, i, operand)
    finish_float(c, i, _rounded(c, "div", middle, c.constant(0x3F800000, "f32"), operand), "f32")


@opcode("sqrt")
def _root(c: Emitter, i: Instr) -> None:
    middle = marks(c, i, (*_ROUND, "ftz", "approx"), ("f32", "f64"))
    mode = next((part for part in middle if part in _ROUND), "rn")
    if i.type == "f64" and middle != ("rn",):
        raise c.refuse()
    (a,) = flushed(c, i, c.read(i.operands[1], i.type))
    directed = c.helper("directed", floats.directed)
    text = f"np.sqrt({a})" if mode == "rn" else f"{directed}('sqrt', {mode!r}, {a}, {a})"
    finish_float(c, i, text, i.type)


@opcode("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")
def _approximate(c: Emitter, i: Instr) -> None:
    name = i.parts[0]
    middle = marks(c, i, ("approx", "ftz"))
    if "approx" not in middle:
        raise c.refuse()
    if i.type in HALVES and name in ("ex2", "tanh"):
        _half(c, i, name, 1)
    elif i.type == "f64" and name == "rsqrt":
        a = c.read(i.operands[1], "f64")
        text = f"1.0 / np.sqrt({a})"
        text = f"{c.helper('high_word', floats.high_word)}({text})" if "ftz" in middle else text
        c.write(i.operands[0], "f64", text)
    elif i.type == "f32":
        (a,) = flushed(c, i, c.read(i.operands[1], "f32"))
        function = _APPROXIMATE[name]
        finish_float(c, i, f"{c.helper(function, getattr(floats, function))}({a})", "f32")
    else:
        raise c.refuse()


@opcode("neg", "abs")
def _sign(c: Emitter, i: Instr) -> None:
    name = i.parts[0]
    if i.type in INTS:
        integer_sign(c, i)
    elif i.type in HALVES:
        marks(c, i, ("ftz",))
        if "ftz" in i.parts:
            raise c.refuse()
        _half_sign(c, i, name)
    else:
        marks(c, i, ("ftz",), ("f32", "f64"))
        (a,) = flushed(c, i, c.read(i.operands[1], i.type))
        c.write(i.operands[0], i.type, f"-{a}" if name == "neg" else f"np.abs({a})")


def _half_sign(c: Emitter, i: Instr, name: str) -> None:
    kind, bits = ("u32", (0x80008000, 0x7FFF7FFF)) if i.type.endswith("x2") else ("u16", (0x8000, 0x7FFF))
    a = c.read(i.operands[1], kind)
    text = f"{a} ^ {c.constant(bits[0], kind)}" if name == "neg" else f"{a} & {c.constant(bits[1], kind)}"
    c.write(i.operands[0], kind, text)


@opcode("min", "max")
def _extreme(c: Emitter, i: Instr) -> None:
    name = i.parts[0]
    if i.type in (*INTS, "u16x2", "s16x2"):
        integer_extreme(c, i)
    elif i.type in HALVES:
        marks(c, i, ("ftz", "NaN"))
        _half(c, i, name, 2)
    else:
        middle = marks(c, i, ("ftz", "NaN", "abs"), ("f32", "f64"))
        text, *rest = flushed(c, i, *(c.read(operand, i.type) for operand in i.operands[1:]))
        if "abs" in middle:
            text, *rest = (c.fresh(f"np.abs({operand})") for operand in (text, *rest))
        called = f"{name}imum" if "NaN" in middle else f"f{name}"
        function = c.helper(called, getattr(floats, called))
        for operand in rest:
            text = f"{function}({text}, {operand})"
        c.write(i.operands[0], i.type, text)


@opcode("copysign")
def _copysign(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("f32", "f64"))
    sign, size = (c.read(operand, i.type) for operand in i.operands[1:])
    c.write(i.operands[0], i.type, f"np.copysign({size}, {sign})")


@opcode("testp")
def _test(c: Emitter, i: Instr) -> None:
    names = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    (name,) = marks(c, i, names, ("f32", "f64"))
    a = c.read(i.operands[1], i.type)
    tiny = "1.1754943508222875e-38" if i.type == "f32" else "2.2250738585072014e-308"
    texts = {
        "finite": f"np.isfinite({a})", "infinite": f"np.isinf({a})", "number": f"~np.isnan({a})",
        "notanumber": f"np.isnan({a})", "normal": f"np.isfinite({a}) & (np.abs({a}) >= {tiny})",
        "subnormal": f"({a} != 0) & (np.abs({a}) < {tiny})",
    }  # fmt: skip
    c.write(i.operands[0], "bool", texts[name])
