"""Basic blocks in the order in which the scheduler prefers them, and which registers live across them."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpsmith.sandbox.emulator.ptx import Function, Instr, Label, Refused, Reg, Sym

EXIT = -1
"""The successor of a block whose lanes are done."""

_WAITS = {"shfl", "vote", "match", "redux", "elect", "mma", "ldmatrix", "stmatrix", "movmatrix", "wmma"}


@dataclass(slots=True)
class Block:
    """Straight-line code. A block that `waits` starts with an instruction that other lanes take part in."""

    index: int
    instrs: list[Instr] = field(default_factory=list)
    waits: str | None = None
    """`warp`, `bar` (all of a block or a named barrier) or `cluster`."""
    kind: str = "jump"
    """`jump` (targets[0]), `cond` (targets: taken, else) or `table` (indexed)."""
    targets: list[int] = field(default_factory=list)
    terminator: Instr | None = None
    spins: bool = False
    """Inside a loop that asks for what others may change meanwhile."""
    observes: bool = False
    """Inside a loop that may wait for another block."""


def wait_kind(instr: Instr) -> str | None:
    """What an instruction waits for before it may run."""
    op = instr.parts[0]
    if (op in _WAITS and op != "vote") or (op == "vote" and "sync" in instr.parts):
        return "warp"
    if op in ("bar", "barrier"):
        if "cluster" in instr.parts:
            return "cluster" if "wait" in instr.parts else None
        if "warp" in instr.parts:
            return "warp"
        return None if "arrive" in instr.parts else "bar"
    return None


def build_blocks(function: Function) -> list[Block]:
    """Blocks of a function in weak topological order: loops are contiguous and what follows a loop comes after it."""
    raw, labels = _split(function)
    successors = [
        _successors(block, number, number == len(raw), labels, function) for number, block in enumerate(raw, 1)
    ]
    edges = [[target for target in targets if target != EXIT] for _, targets in successors]
    reached = _reachable(edges)
    order, loops = _weak_order(reached, edges)
    place = {old: new for new, old in enumerate(order)}
    blocks = []
    for new, old in enumerate(order):
        block = Block(new, list(raw[old]))
        block.kind, targets = successors[old]
        block.targets = [place[target] if target != EXIT else EXIT for target in targets]
        if block.instrs and block.instrs[-1].parts[0] in ("bra", "brx", "ret", "exit"):
            block.terminator = block.instrs.pop()
        block.waits = wait_kind(block.instrs[0]) if block.instrs else None
        blocks.append(block)
    for loop in loops:
        if any(_observes(instr) for old in loop for instr in raw[old]):
            for old in loop:
                blocks[place[old]].spins = blocks[place[old]].observes = True
    asking = [loop for loop in loops if any(_asks(instr) for old in loop for instr in raw[old])]
    for loop in asking:
        if not any(set(other) < set(loop) for other in asking):
            for old in loop:
                blocks[place[old]].spins = True
    _skip_empty_exits(blocks)
    return blocks


def _asks(instr: Instr) -> bool:
    """Whether an instruction asks if a phase of an mbarrier is over."""
    return instr.parts[0] == "mbarrier" and bool({"test_wait", "try_wait"} & set(instr.parts))


def _observes(instr: Instr) -> bool:
    """Whether an instruction may see another block's progress."""
    marks = {"volatile", "acquire", "relaxed", "acq_rel"}
    return instr.parts[0] in ("atom", "nanosleep") or bool(marks & set(instr.parts))


def _split(function: Function) -> tuple[list[list[Instr]], dict[str, int]]:
    """Cut at labels, after terminators and before instructions that wait."""
    raw: list[list[Instr]] = [[]]
    labels: dict[str, int] = {}
    for item in function.body:
        if isinstance(item, Label):
            if raw[-1]:
                raw.append([])
            labels[item.name] = len(raw) - 1
            continue
        if wait_kind(item) and raw[-1]:
            raw.append([])
        raw[-1].append(item)
        if item.parts[0] in ("bra", "brx", "ret", "exit", "trap"):
            raw.append([])
    if raw[-1]:
        raw.append([])
    return raw, labels


def _successors(
    block: list[Instr], follow: int, at_end: bool, labels: dict[str, int], function: Function
) -> tuple[str, list[int]]:
    last = block[-1] if block else None
    op = last.parts[0] if last else ""
    if last is None or op not in ("bra", "brx", "ret", "exit", "trap"):
        return "jump", [EXIT if at_end else follow]
    if op == "brx":
        table = last.operands[1]
        if not isinstance(table, Sym) or table.name not in function.tables or last.guard:
            raise Refused(last.opcode, last.line)
        return "table", [labels[name] for name in function.tables[table.name]]
    if op == "bra":
        target = last.operands[0]
        name = target.name if isinstance(target, Sym | Reg) else ""
        if name not in labels:
            raise Refused(f"branch to {name or target}", last.line)
        taken = labels[name]
    else:
        taken = EXIT
    if op == "trap":
        return "jump", [EXIT if last.guard is None else follow]
    return ("jump", [taken]) if last.guard is None else ("cond", [taken, follow])


def _reachable(edges: list[list[int]]) -> list[int]:
    seen, todo = {0}, [0]
    while todo:
        for target in edges[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return sorted(seen)


def _weak_order(nodes: list[int], edges: list[list[int]]) -> tuple[list[int], list[set[int]]]:
    """Nodes so that every edge but those back to a loop's head goes forward; and the sets of nodes of the loops."""
    order: list[int] = []
    loops: list[set[int]] = []
    for component in _components(nodes, edges):
        head = min(component)
        if len(component) == 1:
            order.append(head)
            if head in edges[head]:
                loops.append({head})
            continue
        loops.append(set(component))
        inner, inner_loops = _weak_order(sorted(set(component) - {head}), edges)
        order += [head, *inner]
        loops += inner_loops
    return order, loops


def _components(nodes: list[int], edges: list[list[int]]) -> list[list[int]]:
    """Strongly connected components of a subgraph in topological order (Tarjan, without recursion)."""
    inside = set(nodes)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    out: list[list[int]] = []
    for root in nodes:
        work: list[tuple[int, int]] = [(root, 0)] if root not in number else []
        while work:
            node, step = work.pop()
            if step == 0:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            targets = [target for target in reversed(edges[node]) if target in inside]
            if 0 < step <= len(targets):
                low[node] = min(low[node], low[targets[step - 1]])
            advanced = _next_target(targets, step, number, on_stack, low, node)
            if advanced is not None:
                work += [(node, advanced + 1), (targets[advanced], 0)]
            elif low[node] == number[node]:
                out.append(_pop_component(stack, on_stack, node))
    return out[::-1]


def _next_target(
    targets: list[int], step: int, number: dict[int, int], on_stack: set[int], low: dict[int, int], node: int
) -> int | None:
    """Position of the next target not yet numbered; those on the stack lower the node on the way."""
    for position in range(step, len(targets)):
        target = targets[position]
        if target not in number:
            return position
        if target in on_stack:
            low[node] = min(low[node], number[target])
    return None


def _pop_component(stack: list[int], on_stack: set[int], node: int) -> list[int]:
    component: list[int] = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        component.append(member)
        if member == node:
            return component


def _skip_empty_exits(blocks: list[Block]) -> None:
    """Branches to a block that only returns exit at once, so that the others are all the live lanes."""
    empty = {block.index for block in blocks if not block.instrs and block.targets == [EXIT]}
    for block in blocks:
        block.targets = [EXIT if target in empty else target for target in block.targets]


def solve_liveness(
    blocks: list[Block], uses: list[set[str]], defs: list[set[str]]
) -> tuple[list[set[str]], list[set[str]]]:
    """Registers live into and out of each block, from the uses before definition and the definitions."""
    live_in = [set(used) for used in uses]
    live_out: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            index = block.index
            out = set().union(*(live_in[target] for target in block.targets if target != EXIT))
            new = uses[index] | (out - defs[index])
            if out != live_out[index] or new != live_in[index]:
                live_out[index], live_in[index] = out, new
                changed = True
    return live_in, live_out
