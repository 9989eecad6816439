"""Emitters of integer, logic, move, compare and select opcodes."""

from __future__ import annotations

from warpsmith.sandbox.emulator import floats, integers
from warpsmith.sandbox.emulator.emitter import LANE_WIDTH, Emitter, lane_type, select
from warpsmith.sandbox.emulator.ptx import WIDTHS, Imm, Instr, Pair, Reg, Sink, Sym, Vec
from warpsmith.sandbox.emulator.table import marks, opcode

INTS = ("u16", "s16", "u32", "s32", "u64", "s64")
BITS = ("b16", "b32", "b64")
_PLAIN = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
            "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip

_HALF_ONE = {"f16": 0x3C00, "bf16": 0x3F80}


def unsigned(kind: str) -> str:
    """The unsigned lane type of the same width: what sign does not touch is computed there."""
    return f"u{8 * LANE_WIDTH[lane_type(kind)]}"


@opcode("and", "or", "xor")
def _logic(c: Emitter, i: Instr) -> None:
    marks(c, i, (), (*BITS, "pred"))
    kind = lane_type(i.type)
    a, b = (c.read(operand, kind) for operand in i.operands[1:])
    c.write(i.operands[0], kind, f"{a} {_PLAIN[i.parts[0]]} {b}")


@opcode("not", "cnot")
def _not(c: Emitter, i: Instr) -> None:
    marks(c, i, (), (*BITS, "pred"))
    kind = lane_type(i.type)
    a = c.read(i.operands[1], kind)
    text = f"~{a}" if i.parts[0] == "not" else f"({a} == 0).astype({c.dtype(kind)})"
    c.write(i.operands[0], kind, text)


def integer_sum(c: Emitter, i: Instr) -> None:
    """`add` and `sub` of integers, with carry or saturation."""
    middle = marks(c, i, ("cc", "sat"), INTS)
    name = i.parts[0]
    if "cc" in middle:
        _carried(c, i, name, incoming=False, outgoing=True)
        return
    if "sat" in middle:
        if i.type != "s32":
            raise c.refuse()
        function = c.helper(f"{name}_saturated", getattr(integers, f"{name}_saturated"))
        a, b = (c.read(operand, "s32") for operand in i.operands[1:])
        c.write(i.operands[0], "s32", f"{function}({a}, {b})")
        return
    kind = unsigned(i.type)
    a, b = (c.read(operand, kind) for operand in i.operands[1:])
    c.write(i.operands[0], kind, f"{a} {_PLAIN[name]} {b}")


@opcode("addc", "subc")
def _with_carry(c: Emitter, i: Instr) -> None:
    middle = marks(c, i, ("cc",), ("u32", "s32", "u64", "s64"))
    _carried(c, i, i.parts[0][:3], incoming=True, outgoing="cc" in middle)


def _carried(c: Emitter, i: Instr, name: str, *, incoming: bool, outgoing: bool) -> None:
    kind = unsigned(i.type)
    a, b = (c.read(operand, kind) for operand in i.operands[1:])
    _carry_out(c, i, name, a, b, incoming=incoming, outgoing=outgoing)


def _carry_out(c: Emitter, i: Instr, name: str, a: str, b: str, *, incoming: bool, outgoing: bool) -> None:
    flag = c.read_register("%cc", "bool") if incoming else "None"
    function = "add_carry" if name == "add" else "sub_borrow"
    pair = c.fresh(f"{c.helper(function, getattr(integers, function))}({a}, {b}, {flag})")
    if outgoing:
        c.write(Reg("%cc"), "bool", f"{pair}[1]")
    c.write(i.operands[0], unsigned(i.type), f"{pair}[0]")


def integer_product(c: Emitter, i: Instr) -> None:
    """`mul.lo`, `mul.hi` and `mul.wide` of integers."""
    part = marks(c, i, ("lo", "hi", "wide"), INTS)
    if len(part) != 1:
        raise c.refuse()
    kind, text = _product(c, i, part[0])
    c.write(i.operands[0], kind, text)


def _product(c: Emitter, i: Instr, part: str) -> tuple[str, str]:
    kind = unsigned(i.type) if part == "lo" else i.type
    a, b = (c.read(operand, kind) for operand in i.operands[1:3])
    if part == "lo":
        return kind, f"{a} * {b}"
    if part == "hi":
        return kind, f"{c.helper('mul_high', integers.mul_high)}({a}, {b})"
    if LANE_WIDTH[kind] == 8:
        raise c.refuse()
    return f"{kind[0]}{2 * int(kind[1:])}", f"{c.helper('mul_wide', integers.mul_wide)}({a}, {b})"


@opcode("madc")
def _madc(c: Emitter, i: Instr) -> None:
    integer_multiply_add(c, i, incoming=True)


def integer_multiply_add(c: Emitter, i: Instr, *, incoming: bool = False) -> None:
    """`mad` of integers with its carries."""
    middle = marks(c, i, ("lo", "hi", "wide", "cc"), INTS)
    part = middle[0] if middle else ""
    if part not in ("lo", "hi", "wide"):
        raise c.refuse()
    kind, text = _product(c, i, part)
    plain = f"u{8 * LANE_WIDTH[kind]}"
    product = c.fresh(c.view_of(c.fresh(text), kind, plain))
    addend = c.read(i.operands[3], plain)
    if incoming or "cc" in middle:
        _carry_out(c, i, "add", product, addend, incoming=incoming, outgoing="cc" in middle)
        return
    c.write(i.operands[0], plain, f"{product} + {addend}")


@opcode("mul24", "mad24")
def _narrow_product(c: Emitter, i: Instr) -> None:
    part = marks(c, i, ("lo", "hi"), ("u32", "s32"))
    shift = c.constant(8, "u32")
    a, b = (
        c.fresh(f"(({c.read(operand, 'u32')} << {shift}).view({c.dtype(i.type)}) >> {c.constant(8, i.type)})")
        for operand in i.operands[1:3]
    )
    wide = c.fresh(f"{c.helper('mul_wide', integers.mul_wide)}({a}, {b})")
    kind = f"{i.type[0]}64"
    cut = c.fresh(wide if part[0] == "lo" else f"{wide} >> {c.constant(16, kind)}")
    text = c.view_of(cut, kind, "u32")
    if i.parts[0] == "mad24":
        text = f"{text} + {c.read(i.operands[3], 'u32')}"
    c.write(i.operands[0], "u32", text)


@opcode("rem")
def _remainder(c: Emitter, i: Instr) -> None:
    marks(c, i, (), INTS)
    a, b = (c.read(operand, i.type) for operand in i.operands[1:])
    c.write(i.operands[0], i.type, f"{c.helper('remainder', integers.remainder)}({a}, {b})")


def integer_quotient(c: Emitter, i: Instr) -> None:
    """`div` of integers."""
    marks(c, i, (), INTS)
    a, b = (c.read(operand, i.type) for operand in i.operands[1:])
    c.write(i.operands[0], i.type, f"{c.helper('divide', integers.divide)}({a}, {b})")


def integer_sign(c: Emitter, i: Instr) -> None:
    """`neg` and `abs` of integers."""
    marks(c, i, (), ("s16", "s32", "s64"))
    a = c.read(i.operands[1], i.type)
    c.write(i.operands[0], i.type, f"-{a}" if i.parts[0] == "neg" else f"np.abs({a})")


def integer_extreme(c: Emitter, i: Instr) -> None:
    """`min` and `max` of integers, packed 16-bit pairs included."""
    middle = marks(c, i, ("relu",), (*INTS, "u16x2", "s16x2"))
    name = "np.minimum" if i.parts[0] == "min" else "np.maximum"
    kind = i.type.removesuffix("x2")
    if middle and kind[0] != "s":
        raise c.refuse()
    if i.type.endswith("x2"):
        a, b = (c.read(operand, "u32") for operand in i.operands[1:])
        view = f".view({c.dtype(kind)})"
        core = f"{name}(x{view}, y{view}).view({c.dtype('u16')})"
        core = f"np.maximum({name}(x{view}, y{view}), 0).view({c.dtype('u16')})" if middle else core
        c.write(i.operands[0], "u32", f"{c.helper('packed', floats.packed)}(lambda x, y: {core}, {a}, {b})")
        return
    a, b = (c.read(operand, kind) for operand in i.operands[1:])
    text = f"{name}({a}, {b})"
    c.write(i.operands[0], kind, f"np.maximum({text}, 0)" if middle else text)


@opcode("shl", "shr")
def _shift(c: Emitter, i: Instr) -> None:
    marks(c, i, (), (*INTS, *BITS))
    kind = lane_type(i.type)
    kind = unsigned(i.type) if i.parts[0] == "shl" else kind
    a = c.read(i.operands[1], kind)
    amount = i.operands[2]
    if isinstance(amount, Imm):
        count = c.constant(min(amount.value, 127), kind)
    else:
        count = f"np.minimum({c.read(amount, 'u32')}, 127).astype({c.dtype(kind)})"
    c.write(i.operands[0], kind, f"{a} {'<<' if i.parts[0] == 'shl' else '>>'} {count}")


@opcode("shf")
def _funnel(c: Emitter, i: Instr) -> None:
    direction, mode = marks(c, i, ("l", "r", "wrap", "clamp"), ("b32",))
    low, high, amount = (c.read(operand, "u32") for operand in i.operands[1:])
    function = c.helper("funnel", integers.funnel)
    c.write(i.operands[0], "u32", f"{function}({low}, {high}, {amount}, {direction == 'l'}, {mode == 'clamp'})")


@opcode("lop3")
def _lop3(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("b32",))
    table = i.operands[4]
    if not isinstance(table, Imm):
        raise c.refuse()
    a, b, d = (c.read(operand, "u32") for operand in i.operands[1:4])
    c.write(i.operands[0], "u32", f"{c.helper('lookup3', integers.lookup3)}({a}, {b}, {d}, {table.value})")


@opcode("prmt")
def _permute(c: Emitter, i: Instr) -> None:
    modes = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    mode = i.parts[2] if len(i.parts) > 2 else ""
    if i.parts[1] != "b32" or (mode and mode not in modes):
        raise c.refuse()
    a, b, selector = (c.read(operand, "u32") for operand in i.operands[1:])
    c.write(i.operands[0], "u32", f"{c.helper('permute', integers.permute)}({a}, {b}, {selector}, {mode!r})")


@opcode("bfe")
def _extract(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("u32", "s32", "u64", "s64"))
    a = c.read(i.operands[1], i.type)
    start, length = (c.read(operand, "u32") for operand in i.operands[2:])
    c.write(i.operands[0], i.type, f"{c.helper('extract_field', integers.extract_field)}({a}, {start}, {length})")


@opcode("bfi")
def _insert(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("b32", "b64"))
    kind = lane_type(i.type)
    a, b = (c.read(operand, kind) for operand in i.operands[1:3])
    start, length = (c.read(operand, "u32") for operand in i.operands[3:])
    function = c.helper("insert_field", integers.insert_field)
    c.write(i.operands[0], kind, f"{function}({a}, {b}, {start}, {length})")


@opcode("bfind")
def _find(c: Emitter, i: Instr) -> None:
    middle = marks(c, i, ("shiftamt",), ("u32", "s32", "u64", "s64"))
    a = c.read(i.operands[1], i.type)
    c.write(i.operands[0], "u32", f"{c.helper('find_bit', integers.find_bit)}({a}, {bool(middle)})")


@opcode("popc", "clz")
def _count(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("b32", "b64"))
    name = "popcount" if i.parts[0] == "popc" else "leading_zeros"
    a = c.read(i.operands[1], lane_type(i.type))
    c.write(i.operands[0], "u32", f"{c.helper(name, getattr(integers, name))}({a})")


@opcode("brev")
def _reverse(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("b32", "b64"))
    kind = lane_type(i.type)
    c.write(
        i.operands[0],
        kind,
        f"{c.helper('reverse_bits', integers.reverse_bits)}({c.read(i.operands[1], kind)})",
    )


@opcode("dp4a", "dp2a")
def _dot(c: Emitter, i: Instr) -> None:
    types = i.parts[-2:]
    rest = i.parts[1:-2]
    if not set(types) <= {"u32", "s32"} or not set(rest) <= {"lo", "hi"}:
        raise c.refuse()
    a, b, addend = (c.read(operand, "u32") for operand in i.operands[1:])
    kind = "s32" if "s32" in types else "u32"
    total = c.view_of(addend, "u32", kind)
    signs = f"({types[0] == 's32'}, {types[1] == 's32'})"
    if i.parts[0] == "dp4a":
        text = f"{c.helper('dot_bytes', integers.dot_bytes)}({a}, {b}, {total}, {signs})"
    else:
        text = f"{c.helper('dot_halves', integers.dot_halves)}({a}, {b}, {total}, {signs}, {'hi' in rest})"
    c.write(i.operands[0], "u32", text)


@opcode("sad")
def _sad(c: Emitter, i: Instr) -> None:
    marks(c, i, (), INTS)
    a, b, addend = (c.read(operand, i.type) for operand in i.operands[1:])
    c.write(i.operands[0], i.type, f"{c.helper('sad', integers.absolute_difference)}({a}, {b}, {addend})")


@opcode("setp", "set")
def _compare(c: Emitter, i: Instr) -> None:
    name, parts = i.parts[0], list(i.parts[1:-1])
    result = parts.pop() if name == "set" else "pred"
    comparison = parts.pop(0)
    parts = [part for part in parts if part != "ftz"] if i.type == "f32" else parts
    combine = parts[0] if parts else None
    if len(parts) > 1 or combine not in (None, "and", "or", "xor"):
        raise c.refuse()
    if i.type in ("f16x2", "bf16x2"):
        _compare_pair(c, i, comparison, None if name == "setp" else result, combine)
        return
    outcome = c.fresh(_comparison(c, i, comparison))
    first, second = c.pair(i.operands[0])
    opposite = f"~{outcome}"
    if combine:
        other = c.read(i.operands[3], "bool")
        opposite = f"{opposite} {_PLAIN[combine]} {other}"
        outcome = c.fresh(f"{outcome} {_PLAIN[combine]} {other}")
    if name == "setp":
        opposite = c.fresh(opposite) if isinstance(i.operands[0], Pair) else opposite
        c.write(first, "bool", outcome)
        c.write(second, "bool", opposite)
        return
    c.write(first, *_truth(c, outcome, result))


def _truth(c: Emitter, flag: str, result: str) -> tuple[str, str]:
    """Lane type and text of a flag as a number: all ones for integers, 1.0 for floats."""
    if result in ("u16", "s16", "u32", "s32"):
        kind = unsigned(result)
        return kind, f"-{flag}.astype({c.dtype(kind)})"
    if result == "f32":
        return "f32", f"{flag}.astype({c.dtype('f32')})"
    if result not in _HALF_ONE:
        raise c.refuse()
    return "u16", f"{flag}.astype({c.dtype('u16')}) * {c.constant(_HALF_ONE[result], 'u16')}"


def _compare_pair(c: Emitter, i: Instr, comparison: str, result: str | None, combine: str | None) -> None:
    """Packed halves: two predicates, or a packed pair of 1.0 and 0.0."""
    kind = i.type.removesuffix("x2")
    convert, narrow = c.helper("half_to_f32", floats.half_to_f32), c.dtype("u16")
    sides = []
    for shift in (0, 16):
        halves = (f"({c.read(x, 'u32')} >> {c.constant(shift, 'u32')}).astype({narrow})" for x in i.operands[1:3])
        a, b = (c.fresh(f"{convert}({half}, {kind!r})") for half in halves)
        sides.append(c.fresh(_float_comparison(c, comparison, a, b)))
    if combine:
        other = c.read(i.operands[3], "bool")
        sides = [c.fresh(f"{side} {_PLAIN[combine]} {other}") for side in sides]
    if result is None:
        first, second = c.pair(i.operands[0])
        c.write(first, "bool", sides[0])
        c.write(second, "bool", sides[1])
        return
    if result != i.type:
        raise c.refuse()
    low, high = (f"{_truth(c, side, kind)[1]}" for side in sides)
    wide = c.dtype("u32")
    c.write(i.operands[0], "u32", f"({low}).astype({wide}) | (({high}).astype({wide}) << {c.constant(16, 'u32')})")


def _comparison(c: Emitter, i: Instr, comparison: str) -> str:
    kind = i.type
    operands = i.operands[1:3]
    if kind in ("f32", "f64", "f16", "bf16"):
        if kind in ("f16", "bf16"):
            convert = c.helper("half_to_f32", floats.half_to_f32)
            a, b = (c.fresh(f"{convert}({c.read(operand, 'u16')}, {kind!r})") for operand in operands)
        else:
            a, b = (c.read(operand, kind) for operand in operands)
        if "ftz" in i.parts and kind == "f32":
            a, b = (c.fresh(f"{c.helper('flush', floats.flush)}({x})") for x in (a, b))
        return _float_comparison(c, comparison, a, b)
    if kind not in (*INTS, *BITS) or comparison not in _COMPARE:
        raise c.refuse()
    lane = lane_type(kind) if comparison not in ("eq", "ne") else unsigned(kind)
    a, b = (c.read(operand, lane) for operand in operands)
    return f"{a} {_COMPARE[comparison]} {b}"


def _float_comparison(c: Emitter, comparison: str, a: str, b: str) -> str:
    unordered = f"(({a} != {a}) | ({b} != {b}))"
    match comparison:
        case "eq" | "lt" | "le" | "gt" | "ge":
            return f"{a} {_COMPARE[comparison]} {b}"
        case "ne":
            return f"({a} < {b}) | ({a} > {b})"
        case "neu":
            return f"{a} != {b}"
        case "equ":
            return f"({a} == {b}) | {unordered}"
        case "ltu" | "leu" | "gtu" | "geu":
            opposite = {"ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}[comparison]
            return f"~({a} {opposite} {b})"
        case "nan":
            return unordered
        case "num":
            return f"~{unordered}"
    raise c.refuse()


@opcode("selp")
def _selp(c: Emitter, i: Instr) -> None:
    marks(c, i, (), (*INTS, *BITS, "f32", "f64"))
    kind = lane_type(i.type)
    if kind[0] == "s":
        kind = unsigned(kind)
    a, b = (c.read(operand, kind) for operand in i.operands[1:3])
    c.write(i.operands[0], kind, f"{c.helper('select', select)}({c.read(i.operands[3], 'bool')}, {a}, {b})")


@opcode("slct")
def _slct(c: Emitter, i: Instr) -> None:
    kind, test = lane_type(i.parts[-2]), i.type
    if test not in ("s32", "f32") or not set(i.parts[1:-2]) <= {"ftz"}:
        raise c.refuse()
    a, b = (c.read(operand, kind) for operand in i.operands[1:3])
    c.write(i.operands[0], kind, f"{c.helper('select', select)}({c.read(i.operands[3], test)} >= 0, {a}, {b})")


@opcode("mov")
def _move(c: Emitter, i: Instr) -> None:
    marks(c, i, (), (*INTS, *BITS, "f32", "f64", "pred", "b128"))
    target, source = i.operands
    if isinstance(source, Vec):
        _pack(c, i, source)
    elif isinstance(target, Vec):
        _unpack(c, i, target)
    elif i.type == "b128":
        raise c.refuse()
    else:
        kind = lane_type(i.type)
        if isinstance(source, Reg) and source.name in c.native:
            native = c.native[source.name]
            kind = native if native != "bool" and LANE_WIDTH[native] == LANE_WIDTH[kind] else kind
        elif isinstance(source, Sym) and LANE_WIDTH[kind] < 4:
            raise c.refuse()
        c.write(target, kind, c.read(source, kind))


def _pack(c: Emitter, i: Instr, source: Vec) -> None:
    """Registers joined to a wider one, the first in the lowest bits."""
    total = WIDTHS[i.type]
    part = total // len(source.items)
    kind, wide = f"u{8 * part}", f"u{8 * total}"
    if total == 16:
        raise c.refuse()
    text = ""
    for place, item in enumerate(source.items):
        piece = f"{c.read(item, kind)}.astype({c.dtype(wide)})"
        text = piece if not place else f"{text} | ({piece} << {c.constant(8 * part * place, wide)})"
    c.write(i.operands[0], wide, text)


def _unpack(c: Emitter, i: Instr, target: Vec) -> None:
    """A wide register cut into narrower ones, the lowest bits first."""
    total = WIDTHS[i.type]
    part = total // len(target.items)
    if total == 16:
        raise c.refuse()
    kind, wide = f"u{8 * part}", f"u{8 * total}"
    source = c.read(i.operands[1], wide)
    for place, item in enumerate(target.items):
        if isinstance(item, Sink):
            continue
        shifted = source if not place else f"({source} >> {c.constant(8 * part * place, wide)})"
        c.write(item, kind, f"{shifted}.astype({c.dtype(kind)})")


@opcode("bmsk")
def _bmsk(c: Emitter, i: Instr) -> None:
    mode = marks(c, i, ("clamp", "wrap"), ("b32",))
    a, b = (c.read(operand, "u32") for operand in i.operands[1:])
    if mode[0] == "wrap":
        a, b = (c.fresh(f"{x} & {c.constant(31, 'u32')}") for x in (a, b))
    ones, zero = c.constant(0xFFFFFFFF, "u32"), c.constant(0, "u32")
    function = c.helper("insert_field", integers.insert_field)
    c.write(i.operands[0], "u32", f"{function}({ones}, {zero}, np.minimum({a}, 255), np.minimum({b}, 255))")


@opcode("szext")
def _szext(c: Emitter, i: Instr) -> None:
    mode = marks(c, i, ("clamp", "wrap"), ("u32", "s32"))
    a, b = c.read(i.operands[1], i.type), c.read(i.operands[2], "u32")
    count = f"np.minimum({b}, 32)" if mode[0] == "clamp" else f"{b} & {c.constant(31, 'u32')}"
    function = c.helper("extract_field", integers.extract_field)
    c.write(i.operands[0], i.type, f"{function}({a}, {c.constant(0, 'u32')}, {count})")
