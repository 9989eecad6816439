"""Emitters of loads, stores, atomics, asynchronous copies, fences and calls."""

from __future__ import annotations

from warpsmith.sandbox.emulator.emitter import LANE_WIDTH, Emitter, lane_type
from warpsmith.sandbox.emulator.inline import BUILTINS
from warpsmith.sandbox.emulator.ops_convert import address_of
from warpsmith.sandbox.emulator.ptx import WIDTHS, Imm, Instr, Mem, Operand, Reg, Sink, Sym
from warpsmith.sandbox.emulator.table import opcode

_SPACES = {
    "global": "global", "const": "global", "shared": "shared", "shared::cta": "shared", "local": "local",
    "shared::cluster": "cluster", "param": "param", "param::entry": "param", "param::func": "param",
}  # fmt: skip
_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel"}
_SCOPES = {"cta", "cluster", "gpu", "sys"}
_CACHE = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak"}
_HINTS = ("L1::", "L2::")
_PROXIES = {"shared::cta", "shared::cluster", "global"}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_ATOMICS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}


def _spaced(c: Emitter, i: Instr, more: set[str]) -> tuple[str, int]:
    """State space and vector length; refuses a modifier outside caches, scopes and `more`."""
    space, count = "generic", 1
    for part in i.parts[1:-1]:
        if part in _SPACES:
            space = _SPACES[part]
        elif part in _VECTORS:
            count = _VECTORS[part]
        elif part not in _STRONG | _SCOPES | _CACHE | more and not part.startswith(_HINTS):
            raise c.refuse()
    return space, count


def _address(c: Emitter, operand: Operand) -> str:
    if not isinstance(operand, Mem):
        raise c.refuse()
    text, offset = address_of(c, operand.base, operand.offset)
    return f"{text}, {offset}"


@opcode("ld", "ldu")
def _load(c: Emitter, i: Instr) -> None:
    space, count = _spaced(c, i, set())
    source = i.operands[1]
    if not isinstance(source, Mem) or i.type == "b128":
        raise c.refuse()
    targets = c.items(i.operands[0])
    if space == "param" and isinstance(source.base, Sym):
        _load_param(c, i, source, targets)
        return
    kind = lane_type(i.type)
    if kind[0] == "b" or len(targets) != count:
        raise c.refuse()
    kind = _wanted(c, targets[0], kind)
    space = "global" if space == "param" else space
    strong = "acquire" if _STRONG & set(i.parts) else "nc" if "nc" in i.parts else ""
    got = c.fresh(f"S.load(L, {space!r}, {_address(c, source)}, {kind!r}, {count}, {c.site()}, {c.guard}, {strong!r})")
    for place, target in enumerate(targets):
        c.write(target, kind, f"{got}[{place}]")


def _wanted(c: Emitter, target: Operand, kind: str) -> str:
    """The lane type in which the register lives, where that saves a view."""
    home = c.program.homes.get(target.name, kind) if isinstance(target, Reg) else kind
    return home if home != "bool" and LANE_WIDTH[home] == LANE_WIDTH[kind] else kind


def _load_param(c: Emitter, i: Instr, source: Mem, targets: tuple[Operand, ...]) -> None:
    """A kernel parameter, or what a call left in a parameter variable."""
    assert isinstance(source.base, Sym)
    width, kind = WIDTHS[i.type], lane_type(i.type)
    for place, target in enumerate(targets):
        at = source.offset + place * width
        if source.base.name in c.program.function.variables:
            name = f"{source.base.name}+{at}:{width}"
            if name not in c.program.homes:
                raise c.refuse(f"{i.opcode} of a parameter stored in another width")
            c.write(target, kind, c.view_of(c.read_register(name, f"u{8 * width}"), f"u{8 * width}", kind))
        else:
            c.write(target, kind, f"S.param({source.base.name!r}, {at}, {kind!r})")


@opcode("st")
def _store(c: Emitter, i: Instr) -> None:
    space, count = _spaced(c, i, set())
    target, kind = i.operands[0], lane_type(i.type)
    values = c.items(i.operands[1])
    if not isinstance(target, Mem) or i.type == "b128" or len(values) != count:
        raise c.refuse()
    if space == "param":
        _store_param(c, i, target, values)
        return
    kind = unsigned_or_float(kind)
    texts = "".join(f"{c.read(value, kind)}, " for value in values)
    strong = "release" if _STRONG & set(i.parts) else ""
    c.do(f"S.store(L, {space!r}, {_address(c, target)}, {kind!r}, ({texts}), {c.site()}, {c.guard}, {strong!r})")


def unsigned_or_float(kind: str) -> str:
    """Signed types as unsigned ones: registers live unsigned."""
    return f"u{kind[1:]}" if kind[0] == "s" else kind


def _store_param(c: Emitter, i: Instr, target: Mem, values: tuple[Operand, ...]) -> None:
    if not isinstance(target.base, Sym) or target.base.name not in c.program.function.variables:
        raise c.refuse()
    width, kind = WIDTHS[i.type], f"u{8 * WIDTHS[i.type]}"
    for place, value in enumerate(values):
        name = f"{target.base.name}+{target.offset + place * width}:{width}"
        c.program.homes[name] = kind
        c.write(Reg(name), kind, c.read(value, kind))


@opcode("atom", "red")
def _atomic(c: Emitter, i: Instr) -> None:
    space, count = _spaced(c, i, _ATOMICS | {"noftz"})
    names = [part for part in i.parts[1:-1] if part in _ATOMICS]
    kind = lane_type(i.type)
    if len(names) != 1 or count != 1 or space not in ("global", "shared", "cluster", "generic"):
        raise c.refuse()
    name = names[0]
    returns = i.parts[0] == "atom"
    if i.type in ("f16", "bf16", "f16x2", "bf16x2", "b16", "b128") or (name in ("inc", "dec") and kind != "u32"):
        raise c.refuse()
    target, *rest = i.operands[1:] if returns else i.operands
    values = "".join(f"{c.read(operand, kind)}, " for operand in rest)
    wanted = returns and _is_wanted(c, i.operands[0])
    order = "" if _STRONG & set(i.parts) <= {"relaxed"} else "release"
    got = c.fresh(
        f"S.atomic(L, {space!r}, {name!r}, {_address(c, target)}, {kind!r}, ({values}), {c.site()}, {c.guard}, "
        f"{wanted}, {order!r})"
    )
    if wanted:
        c.write(i.operands[0], kind, got)


def _is_wanted(c: Emitter, result: Operand) -> bool:
    """Whether another instruction may look at the result."""
    return not isinstance(result, Sink) and not (isinstance(result, Reg) and c.program.mentions[result.name] == 1)


@opcode("cp")
def _copy(c: Emitter, i: Instr) -> None:
    words = [part for part in i.parts[1:] if not part.startswith(_HINTS)]
    match words:
        case ["async", "commit_group"]:
            c.do("S.copies.commit(L)")
        case ["async", "wait_all"]:
            c.do("S.copies.wait(L, 0, all_issued=True)")
        case ["async", "wait_group"] if isinstance(i.operands[0], Imm):
            c.do(f"S.copies.wait(L, {i.operands[0].value})")
        case ["async", "ca" | "cg", "shared" | "shared::cta", "global"] if len(i.operands) in (3, 4):
            size = i.operands[2]
            if not isinstance(size, Imm) or size.value not in (4, 8, 16):
                raise c.refuse()
            filled = c.read(i.operands[3], "u32") if len(i.operands) == 4 else "None"
            target, source = _address(c, i.operands[0]), _address(c, i.operands[1])
            c.do(f"S.copies.issue(L, {target}, {source}, {size.value}, {filled}, {c.site()}, {c.guard})")
        case ["async", "bulk", "shared::cluster" | "shared::cta", "global", "mbarrier::complete_tx::bytes"] if (
            len(i.operands) == 4
        ):
            target, source = _address(c, i.operands[0]), _address(c, i.operands[1])
            amount, barrier = c.read(i.operands[2], "u32"), _address(c, i.operands[3])
            c.do(f"S.bulk.copy(L, {target}, {source}, {amount}, {barrier}, {c.site()}, {c.guard})")
        case _:
            raise c.refuse()


@opcode("mbarrier")
def _mbarrier(c: Emitter, i: Instr) -> None:
    what = [
        part for part in i.parts[1:] if part not in _STRONG | _SCOPES | {"shared", "shared::cta", "shared::cluster"}
    ]
    one, none = c.constant(1, "u32"), c.constant(0, "u32")
    match what, i.operands:
        case ["init", "b64"], (place, count):
            c.do(f"S.bulk.init(L, {_address(c, place)}, {c.read(count, 'u32')}, {c.site()}, {c.guard})")
        case ["inval", "b64"], _:
            return
        case ["arrive", "b64"], (Sink(), place, *more):
            arrivals = c.read(more[0], "u32") if more else one
            c.do(f"S.bulk.arrive(L, {_address(c, place)}, {arrivals}, {none}, {c.site()}, {c.guard})")
        case ["arrive", "expect_tx", "b64"], (Sink(), place, size):
            c.do(f"S.bulk.arrive(L, {_address(c, place)}, {one}, {c.read(size, 'u32')}, {c.site()}, {c.guard})")
        case ["expect_tx", "b64"], (place, size):
            c.do(f"S.bulk.arrive(L, {_address(c, place)}, {none}, {c.read(size, 'u32')}, {c.site()}, {c.guard})")
        case ["test_wait" | "try_wait", "parity", "b64"], (over, place, parity, *_):
            question = f"S.mbarrier_wait(L, {_address(c, place)}, {c.read(parity, 'u32')}, {c.site()}, {c.guard})"
            c.write(over, "bool", question)
        case _:
            raise c.refuse()


@opcode("fence", "membar")
def _fence(c: Emitter, i: Instr) -> None:
    known = {"sc", "acq_rel", "gl", "sys", "cta", "gpu", "cluster", "acquire", "release", "mbarrier_init"}
    if i.parts[1:3] == ("proxy", "async") and set(i.parts[3:]) <= _PROXIES:
        return
    if not set(i.parts[1:]) <= known:
        raise c.refuse()
    if {"gl", "sys", "gpu", "cluster"} & set(i.parts):
        c.do("S.fence(L)")


@opcode("prefetch", "prefetchu", "nanosleep", "discard", "applypriority")
def _nothing(c: Emitter, i: Instr) -> None:
    """Hints without an effect on values."""


@opcode("createpolicy")
def _policy(c: Emitter, i: Instr) -> None:
    c.write(i.operands[0], "u64", c.constant(0, "u64"))


@opcode("mapa")
def _mapa(c: Emitter, i: Instr) -> None:
    if i.type not in ("u32", "u64") or ("shared::cluster" not in i.parts and i.type != "u64"):
        raise c.refuse()
    source = i.operands[1]
    address = c.read(source, i.type) if isinstance(source, Reg) else c.read(source, "u64")
    if not isinstance(source, Reg) and i.type == "u32":
        address = f"{address}.astype({c.dtype('u32')})"
    rank = c.read(i.operands[2], "u32")
    c.write(i.operands[0], i.type, f"S.map_rank({address}, {rank}, {i.type!r})")


@opcode("getctarank")
def _rank(c: Emitter, i: Instr) -> None:
    if i.type not in ("u32", "u64"):
        raise c.refuse()
    c.write(i.operands[0], "u32", f"S.rank_of(L, {c.read(i.operands[1], i.type)})")


@opcode("call")
def _call(c: Emitter, i: Instr) -> None:
    assert i.call is not None
    if i.call.function not in BUILTINS:
        raise c.refuse(f"call of {i.call.function}")
    if i.call.function == "__assertfail":
        c.do(f"S.trap(L, {c.site()}, {c.guard}, 'device assertion')")
    for name in i.call.results:
        c.program.homes[f"{name}+0:4"] = "u32"
        c.write(Reg(f"{name}+0:4"), "u32", c.constant(0, "u32"))


@opcode("trap", "brkpt")
def _trap(c: Emitter, i: Instr) -> None:
    if i.parts[0] == "brkpt":
        raise c.refuse()
    c.do(f"S.trap(L, {c.site()}, {c.guard}, 'trap')")
