"""Holds what the compiler made against the rules for candidates: kernels, state, functions, registers, opcodes.

This is what decides: rules about source text only explain early. The PTX is read first, then the cubin, which is what
runs, is looked at on its own and has to agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpsmith.kernels.records import Failure
from warpsmith.tools.rules.cubin_symbols import CubinSymbols, read_symbols
from warpsmith.tools.rules.ptx_taint import STRING_TAKERS, find_leak, only_read
from warpsmith.tools.rules.ptx_text import Function, Ptx, PtxFlaw, Statement, Variable, names


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a candidate is expected to consist of."""

    kernels: frozenset[str] | None = None
    """The kernels of its template; None where any may be there besides those that its plan launches."""
    cooperative: bool = False
    """Whether a step starts all blocks together, so that grid barriers work."""
    allows: frozenset[str] = frozenset()
    """Kinds that the family's template needs and has declared, such as `l2_hint`."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that the compiled code breaks, and where in the PTX (None: not in it)."""

    kind: str
    message: str
    at: int | None = None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TIMES = "the launcher takes the times"
_REGISTERS = (
    (re.compile(r"%clock(?:_hi|64)?"), "clock", f"reads a clock: {_TIMES}"),
    (re.compile(r"%globaltimer(?:_lo|_hi)?"), "clock",
     f"reads a clock: {_TIMES} (cuda::barrier waits by it: use the primitives of <cuda_awbarrier_primitives.h>)"),
    (re.compile(r"%pm\d+(?:_64)?"), "clock", f"reads a performance counter: {_TIMES}"),
    (re.compile(r"%(?:gridid|current_graph_exec)"), "launch_id", "tells one launch from another: leave it out"),
    (re.compile(r"%envreg\d+"), "launch_id",
     "reads what the driver says of a launch: leave it out, or mark the step as cooperative"),
)  # fmt: skip
_GRID_BARRIER = frozenset(("%envreg1", "%envreg2"))
"""Hold the address of the barrier of a cooperative launch."""

_SPECIAL = frozenset(
    f"%{name}"
    for name in _words(
        "tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid clusterid nclusterid cluster_ctaid cluster_nctaid "
        "cluster_ctarank cluster_nctarank is_explicit_cluster lanemask_eq lanemask_le lanemask_lt lanemask_ge "
        "lanemask_gt total_smem_size aggr_smem_size dynamic_smem_size reserved_smem_offset_begin "
        "reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1"
    )
)
"""Registers that say where a thread is; those of `_REGISTERS` are refused, any other is unknown."""

_MODIFIERS = (
    (re.compile(r"\.L2::(?:evict_\w+|cache_hint)"), "l2_hint", "asks L2 to keep or drop lines"),
    (re.compile(r"\.mmio"), "opcode", "reads device registers"),
)
_L2 = "asks L2 to keep or drop lines: use plain or streaming accesses (ld.global.cs)"
_OPCODES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("createpolicy", "applypriority", "discard"), ("l2_hint", _L2)),
    "pmevent": ("clock", "fires a performance event: leave it out"),
    "brkpt": ("opcode", "stops for a debugger: leave it out"),
    "multimem": ("opcode", "writes to several devices: a candidate has one"),
    **dict.fromkeys(("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"),
                    ("opcode", "uses a texture or surface, which the launcher does not bind: use ld.global.nc")),
}  # fmt: skip
"""Refused by name, with what to do instead. What stands in neither table is refused as unknown."""

_KNOWN = _words(
    "abs activemask add addc alloca and atom bar barrier bfe bfi bfind bmsk bra brev brx call clusterlaunchcontrol "
    "clz cnot copysign cos cp cvt cvta div dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol "
    "isspacep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mma mov movmatrix mul "
    "mul24 nanosleep neg not or popc prefetch prefetchu prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg "
    "setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix sub subc szext tanh tcgen05 tensormap "
    "testp trap vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 "
    "vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma xor"
)
_DIRECTIVES = _words(
    ".reg .shared .local .param .global .const .pragma .branchtargets .calltargets .callprototype .loc .align"
)

_CALL_DEPTH = 4
"""Calls within calls through which an address is followed."""

_DEVICE = ("device_launch", "launches from the device: put it into the launch plan")
_HEAP = ("malloc", "takes memory from a heap: use a buffer of the launch plan or shared memory")
_FUNCTIONS = (
    (re.compile(r"v?f?printf|puts|putchar"), "printf", "prints: remove the printf"),
    (re.compile(r"malloc|free|__nv_aligned_device_malloc|_Zn\w+|_Zd\w+"), *_HEAP),
    (re.compile(r"cuda\w+|__cuda\w+|cnp\w+"), *_DEVICE),
)
_ALLOWED_FUNCTIONS = STRING_TAKERS


def check_compiled(ptx: str, cubin: bytes, manifest: Manifest) -> Violation | None:
    """The first rule that compiled code breaks, or None. Never raises, whatever the text."""
    try:
        module = Ptx(ptx)
        found = (
            _kernels(module.entries, manifest)
            or _module(module)
            or _functions(module)
            or _registers(module, manifest)
            or _modifiers(module, manifest)
            or _opcodes(module, manifest)
            or _variables(module)
            or _cubin(module, read_symbols(cubin))
        )
    except PtxFlaw as flaw:
        return Violation("asm", f"the compiled text cannot be read: {flaw.message}", flaw.at)
    except ValueError as error:
        return Violation("cubin", str(error))
    return found


def as_failure(violation: Violation, slot: str | None, line: int | None) -> Failure:
    """The violation as the candidate's failure, with the source line where one is known."""
    where = f"line {line}: " if line is not None else ""
    return Failure(stage="rules", kind=violation.kind, slot=slot, message=where + violation.message)


def _kernels(entries: frozenset[str], manifest: Manifest) -> Violation | None:
    if manifest.kernels is None or entries == manifest.kernels:
        return None
    there, due = ", ".join(sorted(entries)), ", ".join(sorted(manifest.kernels))
    return Violation(
        "entry", f"the compiled kernels are {there}, those of the template {due}: write no kernel in a slot"
    )


def _module(module: Ptx) -> Violation | None:
    if module.unknown:
        at, text = module.unknown[0]
        return Violation("directive", f"`{text}` is nothing that a candidate's module holds", at)
    return None


def _functions(module: Ptx) -> Violation | None:
    defined = {function.name for function in module.functions if function.body}
    for function in module.functions:
        if function.body and function.name in _ALLOWED_FUNCTIONS:
            return Violation("external", f"`{function.name}` is CUDA's own: call yours something else", function.at)
        if function.name in defined and "extern" not in function.linkage:
            continue
        found = _foreign_function(function.name)
        if found is not None:
            return Violation(*found, function.at)
    return None


def _foreign_function(name: str) -> tuple[str, str] | None:
    """Kind and message for a function from elsewhere."""
    if name in _ALLOWED_FUNCTIONS:
        return None
    for pattern, kind, message in _FUNCTIONS:
        if pattern.fullmatch(name):
            return kind, f"`{name}` {message}"
    return "external", f"calls `{name}`, which nothing defines: define it in the source"


def _registers(module: Ptx, manifest: Manifest) -> Violation | None:
    for name in sorted(module.registers):
        if manifest.cooperative and name in _GRID_BARRIER:
            continue
        for pattern, kind, message in _REGISTERS:
            if pattern.fullmatch(name):
                if kind in manifest.allows:
                    break
                return Violation(kind, f"`{name}` {message}", _find(module.clean, name))
        else:
            if name not in _SPECIAL and not module.declares(name):
                return Violation(
                    "register", f"`{name}` is no register that a kernel may read", _find(module.clean, name)
                )
    return None


def _modifiers(module: Ptx, manifest: Manifest) -> Violation | None:
    for pattern, kind, message in _MODIFIERS:
        match = pattern.search(module.clean)
        if match is not None and kind not in manifest.allows:
            return Violation(kind, f"`{match[0]}` {message}: leave the hint out", match.start())
    return None


def _opcodes(module: Ptx, manifest: Manifest) -> Violation | None:
    if module.opcodes <= _KNOWN | _DIRECTIVES:
        return None
    for function in module.functions:
        for statement in module.statements(function):
            if statement.opcode not in _KNOWN and statement.opcode not in _DIRECTIVES:
                found = _opcode(statement)
                if found.kind not in manifest.allows:
                    return found
    return None


def _opcode(statement: Statement) -> Violation:
    word = statement.opcode + statement.modifiers
    if statement.opcode in _OPCODES:
        kind, message = _OPCODES[statement.opcode]
        return Violation(kind, f"`{word}` {message}", statement.at)
    if statement.opcode in (".extern", ".visible", ".weak"):
        return Violation("external", f"`{word}` declares what another module would hold: leave it out", statement.at)
    kind = "directive" if word.startswith(".") else "opcode"
    return Violation(kind, f"`{word}` is not among the instructions that a candidate may use", statement.at)


def _variables(module: Ptx) -> Violation | None:
    """No state: what outlives a launch is only read."""
    state = [variable for variable in module.variables if variable.space in ("global", "const", "tex")]
    for variable in state:
        message = _unfit(variable)
        if message is not None:
            return Violation("global_state", f"`{variable.name}` {message}", variable.at)
    kept = frozenset(variable.name for variable in state)
    if not kept:
        return None
    readers: dict[str, frozenset[int]] | None = None
    for function in module.functions:
        if kept.isdisjoint(names(function.body)):
            continue
        readers = _readers(module, kept) if readers is None else readers
        leak = find_leak(module.statements(function), kept, readers)
        if leak is not None:
            return Violation("global_state", _leak_message(function, kept, leak.message), leak.at)
    return None


def _readers(module: Ptx, kept: frozenset[str]) -> dict[str, frozenset[int]]:
    """Device functions that read through parameters and do nothing else with them; as deep as they call each other."""
    callees = [one for one in module.functions if one.body and not one.entry and one.parameters]
    bodies = {one.name: list(module.statements(one)) for one in callees}
    found: dict[str, frozenset[int]] = {}
    for _ in range(_CALL_DEPTH if callees else 0):
        new = {one.name: only_read(bodies[one.name], one.parameters, kept, found) for one in callees}
        if new == found:
            break
        found = new
    return found


def _leak_message(function: Function, kept: frozenset[str], what: str) -> str:
    used = sorted(kept.intersection(names(function.body)))
    shown = f"`{used[0]}`" if len(used) == 1 else f"one of {', '.join(f'`{name}`' for name in used[:3])}"
    return (
        f"{shown} outlives a launch and {what}: keep such values in a buffer of the launch plan; "
        f"constant tables that are only read may stay"
    )


def _unfit(variable: Variable) -> str | None:
    if variable.space == "tex":
        return "is a texture reference, which the launcher does not bind"
    for word in ("managed", "extern", "common"):
        if word in variable.linkage:
            return f"is {word} memory, which outlives a launch: use a buffer of the launch plan"
    if names(variable.initial):
        return "holds addresses: use indices instead"
    return None


def _cubin(module: Ptx, symbols: CubinSymbols) -> Violation | None:
    """The assembled code holds what the PTX says, and asks for nothing more."""
    if symbols.kernels != module.entries:
        return Violation("cubin", f"the assembled kernels are {', '.join(sorted(symbols.kernels)) or 'none'}")
    for name in sorted(symbols.undefined):
        found = _foreign_function(name)
        if found is not None:
            return Violation(*found)
    declared = frozenset(variable.name for variable in module.variables)
    hidden = sorted(symbols.variables - declared)
    if hidden or (symbols.unnamed_bytes and not declared):
        what = f"`{hidden[0]}`" if hidden else f"{symbols.unnamed_bytes} bytes"
        return Violation("global_state", f"the assembled code keeps {what} between launches")
    return None


def _find(text: str, name: str) -> int | None:
    match = re.search(re.escape(name) + r"\b", text)
    return match.start() if match else None
