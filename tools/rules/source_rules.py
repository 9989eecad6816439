"""Rules for source text before it is compiled: slots of templates, and files that someone else wrote.

A foreign file may include listed CUDA headers, define macros and use inline assembly; what comes of that is judged in
the PTX (`ptx_policy.py`). Here only the directives are held to a list, so that no file of the machine is read.
The text is cut as a compiler does: lines ending in a backslash are joined first, then comments and literals are cut.
"""

from __future__ import annotations

import re

from warpsmith.kernels.assemble import unsound_slot
from warpsmith.kernels.cpp_tokens import Token, line_at, tokens
from warpsmith.kernels.families.registry import is_template
from warpsmith.kernels.records import Candidate, Failure
from warpsmith.kernels.slot_text import refusal

_HEADER = re.compile(
    r"""
    cuda_(?:fp16|bf16|fp8|fp6|fp4|runtime|runtime_api|pipeline(?:_primitives|_helpers)?|awbarrier(?:_\w+)?)\.h
    | (?:mma|crt/mma|cooperative_groups|cooperative_groups/\w+|math_constants|math_functions|cuComplex)\.h
    | (?:vector_types|vector_functions|builtin_types|driver_types|host_defines|device_launch_parameters)\.h
    | (?:sm_\d\d_\w+|device_\w*functions)\.h
    | cuda/(?:std/)?\w+ | nv/target | cub/(?:\w+/)?\w+\.cuh
    """,
    re.VERBOSE,
)
"""Device headers of CUDA. Which of them a CUDA version lacks, NVRTC says itself."""
_DIRECTIVES = (
    "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "pragma", "include", "error", "warning",
)  # fmt: skip
_PRAGMAS = ("unroll", "nounroll", "once", "push_macro", "pop_macro", "GCC", "clang", "STDC")
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_LOOSE_SPLICE = re.compile(r"\\[ \t\f\v]+(?:\r?\n|\Z)")
_SPLICE = re.compile(r"\\\r?\n")
_HIDDEN_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)", re.MULTILINE)
_ASSEMBLER_LINE = re.compile(r"(?:^[^\"]*\"|^R\"[^(]*\(|\n|\\n)(?:\\t|[ \t])*(?:#|\\x23|\\0?43)")
_BIDIRECTIONAL = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ENVIRONMENT = re.compile(r"__has_(?:include|embed)\w*|__has_\Z")
_DEVICE_HEADERS = "take CUDA's own, such as <cuda_fp16.h>, <mma.h> or <cuda/std/cstdint>"


def refuse_source(candidate: Candidate) -> Failure | None:
    """Why a candidate's text is not compiled at all, or None. Never raises, whatever the text."""
    if not is_template(candidate.family):
        return refuse_text(candidate.source)
    found = unsound_slot(candidate)
    if found is None:
        return None
    name, message = found
    value = candidate.values.get(name)
    broken = refusal(value) if isinstance(value, str) else None
    return Failure(stage="rules", kind=broken.kind if broken else "escape", slot=name, message=f"{name}: {message}")


def refuse_text(text: str) -> Failure | None:
    """The first rule that a free-form source breaks, or None."""
    loose = _LOOSE_SPLICE.search(text)
    if loose is not None:
        return _failure(text, loose.start(), "directive", "a backslash with white space behind it: delete either")
    turned = _BIDIRECTIONAL.search(text)
    if turned is not None:
        return _failure(text, turned.start(), "unicode", "a character that turns the direction of reading: delete it")
    spliced = _Spliced(text)
    read = list(tokens(spliced.text))
    directive_ends = 0
    for number, token in enumerate(read):
        found = _token(token)
        if found is None and token.at >= directive_ends and token.text in ("#", "%:"):
            found = _directive(read, number, spliced.text)
            directive_ends = _line_end(spliced.text, token.at)
        if found is not None:
            kind, message = found
            return _failure(text, spliced.original(token.at), kind, message)
    return None


class _Spliced:
    """A text with its continued lines joined, and the way back to where things stood."""

    def __init__(self, text: str) -> None:
        self.text = _SPLICE.sub("", text)
        self._joints: list[tuple[int, int]] = []
        removed = 0
        for match in _SPLICE.finditer(text):
            self._joints.append((match.start() - removed, len(match[0])))
            removed += len(match[0])

    def original(self, at: int) -> int:
        """Index in the text as it was."""
        return at + sum(length for joint, length in self._joints if joint <= at)


def _failure(text: str, at: int, kind: str, message: str) -> Failure:
    return Failure(stage="rules", kind=kind, message=f"line {line_at(text, at)}: {message}")


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _token(token: Token) -> tuple[str, str] | None:
    """Kind and message for what no line of a source may hold."""
    if token.kind == "comment":
        if "??/" in token.text:
            return "directive", "the trigraph ??/ in a comment may continue its line: put a space in between"
        return None
    if token.kind == "open":
        return ("escape", "a comment or literal that does not end") if token.text[0] != "'" else None
    if token.kind == "raw" and _HIDDEN_DIRECTIVE.search(token.text[3:]):
        return "directive", "a raw string with a line that looks like a directive: use a plain string"
    if token.kind == "string" and _TRIGRAPH.search(token.text):
        return "directive", "a trigraph in a string: put a backslash between the question marks"
    if token.kind in ("string", "raw") and _ASSEMBLER_LINE.search(token.text):
        return "asm", "a string with a line that begins with `#`, which PTX does not know: leave it out"
    if token.kind == "name" and _ENVIRONMENT.fullmatch(token.text):
        return "include", f"`{token.text}` looks for files: leave it out"
    if token.kind == "name" and token.text in ("__DATE__", "__TIME__", "__TIMESTAMP__"):
        return "clock", f"`{token.text}` makes a compile depend on when it happens: leave it out"
    return None


def _directive(read: list[Token], number: int, text: str) -> tuple[str, str] | None:
    """Kind and message for a `#` that begins no line, or a directive that is not listed or includes what is not."""
    before = text[text.rfind("\n", 0, read[number].at) + 1 : read[number].at]
    if before.strip() and "*/" not in before:
        return "directive", "a `#` inside a line: write directives on lines of their own"
    end = _line_end(text, read[number].at)
    words = [token for token in read[number + 1 : number + 4] if token.at < end and token.kind != "comment"]
    if not words:
        return None
    name = words[0].text
    if name == "include":
        return _include(text[words[0].at + len(name) : end])
    if name not in _DIRECTIVES:
        return "directive", f"`#{name}` is not among the directives that a source may use"
    if name == "pragma" and len(words) > 1 and not _known_pragma(words[1].text):
        return "directive", f"`#pragma {words[1].text}` is not among the pragmas that a source may use: leave it out"
    return None


def _known_pragma(word: str) -> bool:
    return word in _PRAGMAS or word.startswith(("nv_", "diag_"))


def _include(rest: str) -> tuple[str, str] | None:
    match = re.fullmatch(r'\s*(?:<([^<>"]+)>|"([^<>"]+)")\s*(?://.*|/\*[^*]*\*/\s*)?', rest)
    if match is None:
        return "include", "an include whose file is not written out: name a header between < and >"
    path = match[1] or match[2]
    if not _HEADER.fullmatch(path):
        shown = path if len(path) <= 60 else path[:57] + "..."
        return "include", f"`{shown}` is not among the headers that a source may include: {_DEVICE_HEADERS}"
    return None
