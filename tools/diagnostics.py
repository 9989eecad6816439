"""Reads the compiler's log: what it complains about, in which slot, and what resources each kernel
takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warpsmith.kernels.records import Diagnostic, Failure, KernelResources
from warpsmith.sandbox.nvrtc import SOURCE_NAME

MAX_DIAGNOSTICS = 40
MAX_MESSAGE = 500
"""Characters of one message."""

_FRONT_END = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>(?:catastrophic )?error|warning|remark)\b"
    r"(?: #[\w-]+)?: (?P<message>.*)$"
)
_PTXAS = re.compile(
    r"^\s*ptxas (?:application ptx input, line (?P<line>\d+); )?"
    r"(?P<severity>error|warning|fatal)\s*: (?P<message>.*)$"
)
_PTX_LINE = "ptxas application ptx input, line"
_PERFORMANCE = re.compile(r"^\s*ptxas info\s*: (?P<message>\(C\d+\).*)$")
_BARE_ERROR = re.compile(r"^nvrtc: error: (?P<message>.*)$")
_CARET = re.compile(r"^\s*\^\s*$")
"""Points into the quoted source line above it; what lies between message and quotation belongs to the
message."""
MAX_CONTINUATION = 8

_DIRECTORIES = re.compile(r"(?<![\w/.)\]])/(?:[\w.+~@-]+/)+")
_COMPILING = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")


@dataclass(frozen=True, slots=True)
class _Constant:
    """What stands for a macro of the C library."""

    plain: str
    """Needs no header."""
    header: str | None = None
    name: str = ""


_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_CONSTANTS = {
    "INFINITY": _Constant("__int_as_float(0x7f800000)", "math_constants.h", "CUDART_INF_F"),
    "HUGE_VALF": _Constant("__int_as_float(0x7f800000)", "math_constants.h", "CUDART_INF_F"),
    "HUGE_VAL": _Constant("__longlong_as_double(0x7ff0000000000000LL)", "math_constants.h", "CUDART_INF"),
    "NAN": _Constant("__int_as_float(0x7fffffff)", "math_constants.h", "CUDART_NAN_F"),
    "FLT_MAX": _Constant("3.402823466e+38f"),
    "FLT_MIN": _Constant("1.175494351e-38f"),
    "FLT_EPSILON": _Constant("1.192092896e-07f"),
    "DBL_MAX": _Constant("1.7976931348623157e+308"),
    "DBL_MIN": _Constant("2.2250738585072014e-308"),
    "DBL_EPSILON": _Constant("2.2204460492503131e-16"),
    "INT_MAX": _Constant("2147483647"),
    "INT_MIN": _Constant("(-2147483647 - 1)"),
    "UINT_MAX": _Constant("4294967295u"),
    "LLONG_MAX": _Constant("9223372036854775807LL"),
    "M_PI": _Constant("3.14159265358979323846", "math_constants.h", "CUDART_PI"),
}
"""Figures as C11 5.2.4.2 and IEEE 754 give them."""
_KINDS = (
    ("shared_memory", re.compile(r"too much shared data")),
    ("architecture", re.compile(r"not supported on \.target|requires? \.target|requires PTX ISA")),
    ("include", re.compile(r"could not open source file|cannot open source file")),
)


def parse_diagnostics(log: str, ptx: str = "") -> tuple[Diagnostic, ...]:
    """Messages of front end and assembler, without slots.

    `ptx` is the text that the assembler complained about; its line information leads back to the source
    line.
    """
    found: list[Diagnostic] = []
    ptx_lines = source_lines(ptx) if _PTX_LINE in log else []
    lines = log.splitlines()
    for index, line in enumerate(lines):
        diagnostic = _front_end(line, lines[index + 1 :]) or _assembler(line, ptx_lines)
        if diagnostic is not None and diagnostic not in found:
            found.append(diagnostic)
    return _foremost(found)


def joined_diagnostics(messages: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Messages of several units, equal ones once."""
    return _foremost(list(dict.fromkeys(messages)))


def _foremost(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    # Errors first: a flood of warnings must not push out what stopped the compile.
    return tuple(sorted(found, key=lambda diagnostic: diagnostic.severity != "error")[:MAX_DIAGNOSTICS])


def parse_resources(log: str) -> dict[str, KernelResources]:
    """What `ptxas -v` printed, per entry point."""
    resources: dict[str, KernelResources] = {}
    entry, function = None, None
    frame = (0, 0, 0)
    for line in log.splitlines():
        if match := _COMPILING.search(line):
            entry, frame = match[1], (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif (match := _FRAME.search(line)) and function == entry:
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and entry is not None:
            shared = _SHARED.search(line)
            resources[entry] = KernelResources(
                registers=int(match[1]),
                spill_stores=frame[1],
                spill_loads=frame[2],
                shared_bytes=int(shared[1]) if shared else 0,
                stack_bytes=frame[0],
            )
            entry = None
    return resources


def with_slots(diagnostics: Iterable[Diagnostic], slot_lines: Mapping[str, tuple[int, int]]) -> tuple[Diagnostic, ...]:
    """The same messages, each with the slot whose text holds its line."""
    return tuple(item.model_copy(update={"slot": slot_at(item.line, slot_lines)}) for item in diagnostics)


def slot_at(line: int | None, slot_lines: Mapping[str, tuple[int, int]]) -> str | None:
    """The slot that holds a source line; of nested ones the smallest."""
    if line is None:
        return None
    holding = [(last - first, name) for name, (first, last) in slot_lines.items() if first <= line <= last]
    return min(holding)[1] if holding else None


def compile_failure(diagnostics: tuple[Diagnostic, ...], description: str) -> Failure:
    """The first error as a Failure; `description` is used where the compiler printed none."""
    errors = [item for item in diagnostics if item.severity == "error"]
    if not errors:
        return Failure(stage="compile", kind="error", message=description)
    first = errors[0]
    where = f"line {first.line}: " if first.line is not None else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    message = f"{where}{first.message}{more}{_remedy(first)}"
    return Failure(stage="compile", kind=_kind(first), slot=first.slot, message=message)


def entry_points(ptx: str) -> tuple[str, ...]:
    """Names of the kernels in a PTX text."""
    return tuple(_ENTRY.findall(ptx))


def without_directories(text: str) -> str:
    """Absolute paths cut down to file names: messages must not tell where things lie on this machine."""
    return _DIRECTORIES.sub("", text)


def _remedy(diagnostic: Diagnostic) -> str:
    """What to write for a macro of the C library's headers, which NVRTC has none of. A slot includes nothing."""
    match = _UNDEFINED.search(diagnostic.message)
    constant = _CONSTANTS.get(match[1]) if match else None
    if constant is None:
        return ""
    if diagnostic.slot is not None or constant.header is None:
        return f"; NVRTC has no such macro: write {constant.plain}"
    return f"; NVRTC has no such macro: #include <{constant.header}> and write {constant.name}, or {constant.plain}"


def _kind(diagnostic: Diagnostic) -> str:
    for kind, pattern in _KINDS:
        if pattern.search(diagnostic.message):
            return kind
    return "error"


def _front_end(line: str, following: list[str]) -> Diagnostic | None:
    match = _FRONT_END.match(line)
    if match is None:
        bare = _BARE_ERROR.match(line)
        return _diagnostic("error", None, bare["message"]) if bare else None
    message = match["message"]
    message = "; ".join((message, *_continuation(following)))
    severity = match["severity"].removeprefix("catastrophic ")
    if match["file"].rsplit("/", 1)[-1] == SOURCE_NAME:
        return _diagnostic(severity, int(match["line"]), message)
    return _diagnostic(severity, None, f"{match['file']}({match['line']}): {message}")


def _continuation(following: list[str]) -> list[str]:
    """Lines such as `argument types are: (int)` between a message and the source line it quotes."""
    for count, line in enumerate(following[: MAX_CONTINUATION + 2]):
        if _CARET.match(line):
            return [text.strip() for text in following[: max(count - 1, 0)]]
        if _FRONT_END.match(line) or not line.strip():
            break
    return []


def _assembler(line: str, source_lines: list[int | None]) -> Diagnostic | None:
    match = _PTXAS.match(line)
    if match is None:
        performance = _PERFORMANCE.match(line)
        return _diagnostic("remark", None, performance["message"]) if performance else None
    if match["severity"] == "fatal" and "aborted due to errors" in match["message"]:
        return None
    severity = "warning" if match["severity"] == "warning" else "error"
    number = int(match["line"]) if match["line"] else 0
    source = source_lines[number - 1] if 0 < number <= len(source_lines) else None
    return _diagnostic(severity, source, match["message"])


def _diagnostic(severity: str, line: int | None, message: str) -> Diagnostic:
    text = without_directories(message.strip())[:MAX_MESSAGE]
    return Diagnostic.model_validate({"severity": severity, "line": line, "message": text})


def source_lines(ptx: str) -> list[int | None]:
    """For each line of the PTX the source line that its last `.loc` in our file names, as far as there is one."""
    ours = {int(number) for number, name in _FILE.findall(ptx) if name.rsplit("/", 1)[-1] == SOURCE_NAME}
    found: list[int | None] = []
    current: int | None = None
    for line in ptx.splitlines():
        if line.lstrip().startswith((".visible", ".entry", ".func")):
            current = None
        match = _LOC.match(line)
        if match and int(match[1]) in ours:
            current = int(match[2])
        found.append(current)
    return found
