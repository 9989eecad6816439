"""Emitters of conversions: `cvt`, packed forms included, `cvta` and `isspacep`."""

from __future__ import annotations

from warpsmith.sandbox.emulator import convert, floats
from warpsmith.sandbox.emulator.emitter import LANE_WIDTH, Emitter, lane_type
from warpsmith.sandbox.emulator.ops_float import flushed
from warpsmith.sandbox.emulator.ptx import Instr, Reg
from warpsmith.sandbox.emulator.spaces import LOCAL_WINDOW, SHARED_WINDOW
from warpsmith.sandbox.emulator.table import opcode

_WHOLE = {"rni", "rzi", "rmi", "rpi"}
_ROUND = {"rn", "rz", "rm", "rp", "rna"}
_INTEGERS = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}
_FLOATS = {"f32", "f64"}
_HALF = {"f16", "bf16"}


@opcode("cvt")
def _convert(c: Emitter, i: Instr) -> None:
    middle = set(i.parts[1:-2])
    target, source = i.parts[-2], i.parts[-1]
    if not middle <= _WHOLE | _ROUND | {"sat", "ftz", "relu", "satfinite"} or "satfinite" in middle:
        raise c.refuse()
    rounding = next((part for part in i.parts[1:-2] if part in _WHOLE | _ROUND), "")
    if target in ("f16x2", "bf16x2") and source == "f32" and len(i.operands) == 3:
        _pack_halves(c, i, target.removesuffix("x2"), rounding)
    elif target == "tf32" and source == "f32" and rounding in ("rna", "rn", "rz"):
        function = c.helper("to_tf32", convert.to_tf32)
        c.write(i.operands[0], "f32", f"{function}({c.read(i.operands[1], 'f32')}, {rounding!r})")
    elif {target, source} <= _INTEGERS | _FLOATS | _HALF and rounding != "rna":
        kind, text = _scalar(c, i, target, source, rounding)
        c.write(i.operands[0], kind, text)
    else:
        raise c.refuse()


def _scalar(c: Emitter, i: Instr, target: str, source: str, rounding: str) -> tuple[str, str]:
    """Lane type and text of one conversion."""
    if source in _INTEGERS:
        value = c.read(i.operands[1], source)
        return _from_int(c, i, target, source, value, rounding)
    if source in _HALF:
        value = c.read(i.operands[1], "u16")
        if target in _INTEGERS:
            function = c.helper("half_to_int", convert.half_to_int)
            return target, f"{function}({value}, {source!r}, {_whole(c, rounding)!r}, {c.dtype(target)})"
        if source == target and rounding not in _WHOLE and "sat" not in i.parts:
            return "u16", value
        value = c.fresh(f"{c.helper('half_to_f32', floats.half_to_f32)}({value}, {source!r})")
        return _from_float(c, i, target, "f32", value, rounding)
    (value,) = flushed(c, i, c.read(i.operands[1], source)) if source == "f32" else [c.read(i.operands[1], source)]
    return _from_float(c, i, target, source, value, rounding)


def _whole(c: Emitter, rounding: str) -> str:
    if rounding not in _WHOLE:
        raise c.refuse()
    return rounding


def _from_int(c: Emitter, i: Instr, target: str, source: str, value: str, rounding: str) -> tuple[str, str]:
    if target in _INTEGERS:
        if "sat" in i.parts:
            return target, f"{c.helper('saturate_int', convert.saturate_int)}({value}, {c.dtype(target)})"
        return target, value if source == target else f"{value}.astype({c.dtype(target)})"
    if target in _HALF:
        if rounding != "rn":
            raise c.refuse()
        return "u16", f"{c.helper('int_to_half', convert.int_to_half)}({value}, {target!r})"
    mode = rounding or "rn"
    if mode in _WHOLE:
        raise c.refuse()
    text = f"{c.helper('int_to_float', convert.int_to_float)}({value}, {mode!r}, {c.dtype(target)})"
    return target, _saturated(c, i, text)


def _from_float(c: Emitter, i: Instr, target: str, source: str, value: str, rounding: str) -> tuple[str, str]:
    if target in _INTEGERS:
        function = c.helper("float_to_int", convert.float_to_int)
        return target, f"{function}({value}, {_whole(c, rounding)!r}, {c.dtype(target)})"
    if rounding in _WHOLE:
        value = c.fresh(f"{c.helper('round_to_whole', convert.round_to_whole)}({value}, {rounding!r})")
        rounding = "rn"
    if target in _HALF:
        return "u16", _to_half(c, i, target, value, rounding or "rn")
    if source == "f64" and target == "f32":
        text = f"{c.helper('f64_to_f32', convert.f64_to_f32)}({value}, {rounding or 'rn'!r})"
        text = f"{c.helper('flush', floats.flush)}({text})" if "ftz" in i.parts else text
        return "f32", _saturated(c, i, text)
    text = value if source == target else f"{value}.astype({c.dtype(target)})"
    return target, _saturated(c, i, text)


def _to_half(c: Emitter, i: Instr, kind: str, value: str, rounding: str) -> str:
    if rounding not in ("rn", "rz"):
        raise c.refuse()
    if "relu" in i.parts:
        value = c.fresh(f"np.where({value} <= 0, {value}.dtype.type(0), {value})")
    value = _saturated(c, i, value)
    return f"{c.helper('f32_to_half', floats.f32_to_half)}({value}, {kind!r}, {rounding!r})"


def _saturated(c: Emitter, i: Instr, text: str) -> str:
    return f"{c.helper('saturate', floats.saturate)}({text})" if "sat" in i.parts else text


def _pack_halves(c: Emitter, i: Instr, kind: str, rounding: str) -> None:
    """`cvt.rn.f16x2.f32 d, a, b`: a in the upper half, b in the lower."""
    upper, lower = (c.fresh(_to_half(c, i, kind, c.read(operand, "f32"), rounding)) for operand in i.operands[1:])
    wide = c.dtype("u32")
    c.write(i.operands[0], "u32", f"({upper}.astype({wide}) << {c.constant(16, 'u32')}) | {lower}.astype({wide})")


_WINDOWS = {"global": 0, "const": 0, "param": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW}


def _space(c: Emitter, i: Instr) -> str:
    names = [part.split("::")[0] for part in i.parts if part.split("::")[0] in _WINDOWS]
    if len(names) != 1:
        raise c.refuse()
    return names[0]


@opcode("cvta")
def _generic(c: Emitter, i: Instr) -> None:
    window = c.constant(_WINDOWS[_space(c, i)], "u64")
    if i.type != "u64":
        raise c.refuse()
    value = c.read(i.operands[1], "u64")
    sign = "-" if "to" in i.parts else "+"
    c.write(i.operands[0], "u64", value if _WINDOWS[_space(c, i)] == 0 else f"{value} {sign} {window}")


@opcode("isspacep")
def _is_space(c: Emitter, i: Instr) -> None:
    name = _space(c, i)
    if name not in ("global", "shared", "local"):
        raise c.refuse()
    value = c.read(i.operands[1], "u64")
    shared, local = c.constant(SHARED_WINDOW, "u64"), c.constant(LOCAL_WINDOW, "u64")
    texts = {
        "global": f"{value} < {shared}",
        "shared": f"({value} >= {shared}) & ({value} < {local})",
        "local": f"{value} >= {local}",
    }
    c.write(i.operands[0], "bool", texts[name])


def address_of(c: Emitter, operand: object, offset: int) -> tuple[str, int]:
    """Text of a base address (lane type u64) and the constant that is added to it."""
    if isinstance(operand, Reg):
        width = LANE_WIDTH[c.program.homes[operand.name]] if operand.name in c.program.homes else 8
        if width == 8:
            return c.read(operand, "u64"), offset
        return f"{c.read(operand, 'u32')}.astype({c.dtype('u64')})", offset
    return c.read(operand, lane_type("u64")), offset  # type: ignore[arg-type]
