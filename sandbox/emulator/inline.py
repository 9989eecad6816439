"""Device functions put into their callers: parameters become registers, `ret` a jump."""

from __future__ import annotations

from dataclasses import replace

from warpsmith.sandbox.emulator.ptx import (
    Function,
    Instr,
    Label,
    Mem,
    Module,
    Operand,
    Pair,
    Refused,
    Reg,
    Sym,
    Vec,
)

_DEPTH = 8
BUILTINS = ("vprintf", "__assertfail")
"""External functions with a meaning here: printing is dropped, a failed assertion is a trap."""


def inlined(module: Module, entry: Function) -> Function:
    """A copy of `entry` without calls to functions of the module. Raises Refused for recursion and unknown ones."""
    out = Function(entry.name, True, entry.params, [], dict(entry.registers), dict(entry.variables))
    out.directives, out.tables = entry.directives, dict(entry.tables)
    counter = [0]
    out.body = _expand(module, out, entry.body, (entry.name,), counter)
    return out


def _expand(
    module: Module, out: Function, body: list[Instr | Label], stack: tuple[str, ...], counter: list[int]
) -> list[Instr | Label]:
    result: list[Instr | Label] = []
    for item in body:
        if isinstance(item, Label) or item.call is None or item.call.function in BUILTINS:
            result.append(item)
            continue
        name = item.call.function
        callee = module.functions.get(name)
        if callee is None:
            raise Refused(f"call of {name}", item.line)
        if name in stack or len(stack) > _DEPTH:
            raise Refused(f"recursive call of {name}", item.line)
        if item.guard is not None:
            raise Refused("predicated call", item.line)
        counter[0] += 1
        copied = _copy(out, callee, item, f"@{counter[0]}")
        result += _expand(module, out, copied, (*stack, name), counter)
    return result


def _copy(out: Function, callee: Function, site: Instr, suffix: str) -> list[Instr | Label]:
    """The callee's body with its names made unique and its parameters bound to the call's variables."""
    call = site.call
    assert call is not None
    names = {name: name + suffix for name in (*callee.registers, *callee.variables, *callee.tables)}
    names |= {item.name: item.name + suffix for item in callee.body if isinstance(item, Label)}
    names |= {param.name: bound for param, bound in zip(callee.params, call.arguments, strict=True)}
    names |= {param.name: bound for param, bound in zip(callee.results, call.results, strict=True)}
    out.registers |= {names[name]: kind for name, kind in callee.registers.items()}
    out.variables |= {names[name]: replace(variable, name=names[name]) for name, variable in callee.variables.items()}
    out.tables |= {names[name]: tuple(names[label] for label in labels) for name, labels in callee.tables.items()}
    end = Label(f"return{suffix}")
    body: list[Instr | Label] = []
    for item in callee.body:
        if isinstance(item, Label):
            body.append(Label(names[item.name]))
        elif item.parts[0] == "ret":
            body.append(replace(_renamed(item, names), parts=("bra",), operands=(Sym(end.name),)))
        else:
            body.append(_renamed(item, names))
    return [*body, end]


def _renamed(instr: Instr, names: dict[str, str]) -> Instr:
    call = instr.call
    if call is not None:
        call = replace(
            call,
            results=tuple(names.get(name, name) for name in call.results),
            arguments=tuple(names.get(name, name) for name in call.arguments),
        )
    guard = names.get(instr.guard, instr.guard) if instr.guard else None
    operands = tuple(_renamed_operand(operand, names) for operand in instr.operands)
    return replace(instr, operands=operands, guard=guard, call=call)


def _renamed_operand(operand: Operand, names: dict[str, str]) -> Operand:
    match operand:
        case Reg(name):
            return Reg(names.get(name, name))
        case Sym(name):
            return Sym(names.get(name, name))
        case Mem(base, offset):
            renamed = _renamed_operand(base, names)
            assert isinstance(renamed, Reg | Sym) or renamed is base
            return Mem(renamed, offset)
        case Vec(items):
            return Vec(tuple(_renamed_operand(item, names) for item in items))
        case Pair(first, second):
            return Pair(_renamed_operand(first, names), _renamed_operand(second, names))
    return operand
