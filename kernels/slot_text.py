"""Owns the rules for the text of a code slot: it stays a statement list in its place, and says nothing a slot may not.

The text is cut into tokens, each held against the tables below, its brackets are matched, and then it is parsed as
the body of a function: the parse has to be free of errors and to end where the text does. The compiled PTX is
policed as well (`tools/rules/ptx_policy.py`) and decides; these rules come first and say what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, lru_cache

import tree_sitter
import tree_sitter_cuda

from warpsmith.kernels.cpp_tokens import Token, line_at, tokens, unseen_character

MAX_CHARACTERS = 8_192
"""Of one slot; default texts of fused problems have a few hundred."""
MAX_DEPTH = 64
"""Brackets within brackets, and operators without an operand between them."""

_HEAD, _TAIL = "void slot() {\n", "\n}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a text may not fill a code slot: the rule, the line within the text, and what to write instead."""

    kind: str
    line: int
    message: str


_ESCAPE = "a slot holds statements inside a kernel"
_STATE = "a slot keeps nothing between launches: use a plain local variable"
_JUMP = "a slot runs from its first to its last line: use if/else"
_TYPES = "a slot declares no types for others: write the type out or use auto"
_HOST = "device code has none of it: leave it out"
_WORDS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("__global__", "__device__", "__host__", "__launch_bounds__", "extern", "inline"),
                    ("escape", _ESCAPE)),
    **dict.fromkeys(("__constant__", "__managed__"), ("global_state", _STATE)),
    **dict.fromkeys(("static", "thread_local"), ("global_state", _STATE)),
    **dict.fromkeys(("asm", "__asm__", "__asm"), ("asm", "use a CUDA intrinsic instead of assembly")),
    **dict.fromkeys(("namespace", "using", "template", "typedef", "friend", "concept", "operator"), ("escape", _TYPES)),
    **dict.fromkeys(("module", "import", "export"), ("escape", "leave it out")),
    **dict.fromkeys(("goto", "co_await", "co_return", "co_yield", "setjmp", "longjmp"), ("jump", _JUMP)),
    **dict.fromkeys(("typeid", "new", "delete", "throw", "try", "catch", "dynamic_cast", "virtual"), ("host", _HOST)),
    **dict.fromkeys(("__attribute__", "__attribute", "__declspec"), ("attribute", "leave the attribute out")),
    **dict.fromkeys(("_Pragma", "__pragma"), ("directive", "loops with constant bounds unroll without a pragma")),
}  # fmt: skip

_PRINT = ("printf", "print nothing: read the verdict instead")
_MEMORY = ("malloc", "a kernel owns no heap: use a local or __shared__ array")
_CLOCK = ("clock", "the launcher takes the times: leave it out")
_STOP = ("call", "leave it out: an error shows in the verdict")
_CALLS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("printf", "vprintf", "fprintf", "sprintf", "snprintf", "puts", "putchar"), _PRINT),
    **dict.fromkeys(("malloc", "calloc", "realloc", "free", "alloca", "__builtin_alloca", "__nv_aligned_device_malloc"),
                    _MEMORY),
    **dict.fromkeys(("clock", "clock64", "__clock", "__clock64", "__globaltimer", "__nanosleep", "__prof_trigger",
                     "__pm0", "__pm1", "__pm2", "__pm3"), _CLOCK),
    **dict.fromkeys(("assert", "abort", "exit", "__trap", "__brkpt", "__assertfail", "__assert_fail"), _STOP),
}  # fmt: skip
"""Refused where they are called; a variable may have such a name."""

_INTRINSIC = re.compile(
    r"""__(?:
      shared__ | restrict__ | align__ | forceinline__ | noinline__
    | syncthreads(?:_(?:and|or|count))? | syncwarp | threadfence(?:_block|_system)?
    | (?:shfl|match|reduce)(?:_\w+)?_sync | (?:all|any|ballot)_sync | activemask | all | any | ballot
    | ld(?:g|ca|cg|cs|lu|cv) | st(?:wb|cg|cs|wt)
    | [fd](?:add|sub|mul|div|rcp|sqrt|ma|maf)_r[nzud] | f(?:maf|ma|rsqrt|adds?|mul2?|ma2|add2)_r[nzud](?:_\w+)?
    | (?:exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|tanh|fdivide|saturate)f | fdividef | saturatef
    | u?mul(?:24|hi|64hi) | umul64hi | u?l?l?mulhi | u?sad | u?r?hadd | u?hadd | ur?hadd
    | brev(?:ll)? | clz(?:ll)? | ffs(?:ll)? | popc(?:ll)? | fns | byte_perm
    | funnelshift_(?:lc?|rc?) | dp[24]a(?:_(?:lo|hi))?
    | \w+2\w+ | \w+_as_\w+ | h[a-z]\w* | v(?:abs|add|sub|avg|cmp|max|min|neg|sad|set|i[bm]|hadd)\w*[24]?
    | (?:low|high|lows|highs)\w* | bfloat\w* | nv_(?:bfloat|fp[468]|half|cvt)\w*
    | pipeline_(?:memcpy_async|commit|wait_prior) | cvta_generic_to_\w+
    | is(?:Shared|Global|Local|Constant|GridConstant)
    | cluster_\w+ | clusterDim\w* | clusterRelativeBlockRank | clusterGridDimInClusters
    | builtin_(?:assume|assume_aligned|expect|unreachable|bit_cast|is\w+|huge_valf?|inff?|nanf?)
    )""",
    re.VERBOSE,
)
"""Reserved names that a slot may use: CUDA's intrinsics for arithmetic, conversion, warps, barriers and caches."""

_QUERY = """
(ERROR) @error
(labeled_statement) @label
(case_statement) @case
(break_statement) @break
(continue_statement) @continue
(return_statement) @return
(attribute_declaration) @attribute
(kernel_call_syntax) @launch
(declaration declarator: (identifier) @name)
(init_declarator declarator: (identifier) @name)
(array_declarator declarator: (identifier) @name)
(pointer_declarator declarator: (identifier) @name)
(reference_declarator (identifier) @name)
(structured_binding_declarator (identifier) @name)
(parameter_declaration declarator: (identifier) @name)
"""
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_INSIDE: dict[str, tuple[tuple[str, ...], str, str]] = {
    "label": ((), "jump", "labels: " + _JUMP),
    "case": (("switch_statement",), "jump", "`case` without its own `switch`: write the whole switch in the slot"),
    "break": ((*_LOOPS, "switch_statement"), "jump", "`break` out of the slot: " + _JUMP),
    "continue": (_LOOPS, "jump", "`continue` of a loop outside the slot: " + _JUMP),
    "return": (("lambda_expression", "method"), "jump", "`return` out of the slot: " + _JUMP),
    "attribute": (("never",), "attribute", "attributes: leave them out"),
    "launch": ((), "device_launch", "a kernel launch: a slot computes inside one kernel"),
}
_MARKER = re.compile(r"//[@%#]|\$\{|%%//|##//")
_SPLICE = re.compile(r"\\[ \t]*$", re.MULTILINE)
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_DIGRAPHS = ("<%", "%>", "<:", ":>", "%:", "%:%:")
_CLOSING = {")": "(", "]": "[", "}": "{"}


def refuse_code(text: str, reserved: Collection[str] = ()) -> str | None:
    """Why a text may not fill a code slot, or None: the line, the token and what to write instead.

    `reserved` are names of the template that the text may not declare anew.
    """
    found = refusal(text, frozenset(reserved))
    return None if found is None else f"line {found.line}: {found.message}"


@lru_cache(maxsize=1024)
def refusal(text: str, reserved: frozenset[str] = frozenset()) -> Refusal | None:
    """The first rule that a slot's text breaks, or None. Never raises, whatever the text."""
    found = _characters(text)
    if found is not None or not text.strip():
        return found
    read = [token for token in tokens(text) if token.kind != "comment"]
    if read and read[0].text == "else":
        return _at(text, read[0].at, "escape", "`else` without its own `if`: write both in the slot")
    return _tokens(text, read) or _brackets(text, read) or _parsed(text, reserved)


def _at(text: str, at: int, kind: str, message: str) -> Refusal:
    return Refusal(kind, line_at(text, at), message)


def _characters(text: str) -> Refusal | None:
    if len(text) > MAX_CHARACTERS:
        return Refusal("size", 1, f"{len(text):,} characters; a slot takes {MAX_CHARACTERS:,}: write loops")
    unseen = unseen_character(text)
    if unseen is not None:
        code = f"U+{ord(text[unseen]):04X}"
        return _at(text, unseen, "unicode", f"the character {code} does not show: delete it")
    for pattern, kind, what in (
        (_MARKER, "escape", "is a mark of the template: put a space after //"),
        (_SPLICE, "directive", "continues the line: end the statement on its own line"),
        (_TRIGRAPH, "directive", "is a trigraph: write the character itself"),
    ):
        match = pattern.search(text)
        if match is not None:
            return _at(text, match.start(), kind, f"`{match[0].strip()}` {what}")
    return None


def _tokens(text: str, read: list[Token]) -> Refusal | None:
    previous = ";"
    for index, token in enumerate(read):
        after = read[index + 1].text if index + 1 < len(read) else ""
        found = _token(token, after, previous)
        previous = token.text
        if found is not None:
            kind, message = found
            shown = token.text if len(token.text) <= 40 else token.text[:37] + "..."
            return _at(text, token.at, kind, f"`{shown}` {message}")
    return None


def _token(token: Token, after: str, previous: str) -> tuple[str, str] | None:
    """Kind and message of the rule that a token breaks."""
    if token.kind == "name":
        return _name(token.text, after, previous)
    if token.kind == "punctuator":
        return _punctuator(token.text, after)
    if token.kind == "open":
        return "escape", "does not end inside the slot: close the comment or literal"
    if token.kind == "raw" or (token.kind in ("string", "char") and token.text[0] not in "\"'"):
        return "literal", "is a literal that a slot does not take: write a plain one"
    if "\\u" in token.text or "\\U" in token.text or "\\N" in token.text:
        return "unicode", "holds a character by its number: write a plain one"
    if token.kind == "number" and "_" in token.text:
        return "literal", "has a suffix that CUDA does not know: write the number alone"
    return None


def _name(name: str, after: str, previous: str) -> tuple[str, str] | None:
    if name in _WORDS:
        kind, remedy = _WORDS[name]
        return kind, f"may not stand in a slot: {remedy}"
    called = after == "(" and previous not in (".", "->")
    if called and name in _CALLS:
        kind, remedy = _CALLS[name]
        return kind, f"may not be called in a slot: {remedy}"
    if called and re.match(r"cu(?:da)?[A-Z]", name):
        return "device_launch", "calls the CUDA run time: a slot computes inside one kernel"
    if (name.startswith("__") and not _INTRINSIC.fullmatch(name)) or re.match(r"_[A-Z]", name):
        return "reserved", "is a reserved name and no known intrinsic: use another one"
    if "$" in name:
        return "reserved", "holds a `$`: use letters, digits and _"
    return None


def _punctuator(text: str, after: str) -> tuple[str, str] | None:
    if text in ("#", "##"):
        return "directive", "begins a directive, which a slot does not take: loops with constant bounds unroll anyway"
    if text in _DIGRAPHS:
        return "directive", "is another spelling of a bracket or #: write the character itself"
    if text in ("<<<", ">>>"):
        return "device_launch", "launches a kernel: a slot computes inside one"
    if text == "[" and after == "[":
        return "attribute", "begins an attribute: leave it out, or put a space between the brackets"
    if not text.isascii():
        return "unicode", "is no character of C++: use letters, digits and _"
    if text in ("\\", "@", "`"):
        return "escape", "is no token of C++: leave it out"
    return None


def _brackets(text: str, read: list[Token]) -> Refusal | None:
    """Brackets that match at the level of tokens, whatever a parser would make of them."""
    stack: list[Token] = []
    run = 0
    for token in read:
        operand = token.kind != "punctuator" or token.text in ")]};,"
        run = 0 if operand else run + 1
        if token.kind == "punctuator":
            if token.text in ("(", "[", "{"):
                stack.append(token)
            elif token.text in _CLOSING and (not stack or stack.pop().text != _CLOSING[token.text]):
                return _at(text, token.at, "escape", f"`{token.text}` closes what the slot did not open: delete it")
        if len(stack) > MAX_DEPTH or run > MAX_DEPTH:
            return _at(text, token.at, "size", f"more than {MAX_DEPTH} levels deep: use variables for the parts")
    if stack:
        return _at(text, stack[-1].at, "escape", f"`{stack[-1].text}` is not closed inside the slot: close it")
    return None


@cache
def _grammar() -> tuple[tree_sitter.Language, tree_sitter.Query]:
    language = tree_sitter.Language(tree_sitter_cuda.language())
    return language, tree_sitter.Query(language, _QUERY)


def _parsed(text: str, reserved: frozenset[str]) -> Refusal | None:
    """The text as the body of one function."""
    language, query = _grammar()
    source = (_HEAD + text + _TAIL).encode()
    root = tree_sitter.Parser(language).parse(source).root_node  # a parser of its own: threads may not share one
    captures = tree_sitter.QueryCursor(query).captures(root)
    if root.has_error:
        node = _first_error(root, captures.get("error", []))
        line = min(max(node.start_point[0], 1), text.count("\n") + 1)
        return Refusal("statement", line, f"{_near(node, source)}: write complete statements, each ended by `;`")
    function = root.children[0]
    if root.child_count != 1 or function.type != "function_definition" or function.end_byte != len(source):
        return Refusal("escape", 1, f"more than statements: {_ESCAPE}")
    return _captured(captures) or _redeclared(captures.get("name", []), reserved)


def _first_error(root: tree_sitter.Node, errors: list[tree_sitter.Node]) -> tree_sitter.Node:
    """The first node that is an error or was missed."""
    if errors:
        return min(errors, key=lambda node: node.start_byte)
    node = root
    while not node.is_missing:
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            break
        node = inner
    return node


def _near(node: tree_sitter.Node, source: bytes) -> str:
    if node.is_missing:
        return f"`{node.type}` is missing"
    start = max(node.start_byte, len(_HEAD))
    shown = source[start : max(start, node.end_byte)].decode(errors="replace").strip().split("\n")[0][:40]
    return f"not understood near `{shown}`" if shown else "not understood"


def _captured(captures: dict[str, list[tree_sitter.Node]]) -> Refusal | None:
    """Nodes that need another around them which lies in the slot as well."""
    for name, nodes in captures.items():
        if name not in _INSIDE:
            continue
        homes, kind, message = _INSIDE[name]
        for node in nodes:
            if not _within(node, homes):
                return Refusal(kind, max(node.start_point[0], 1), message)
    return None


def _within(node: tree_sitter.Node, homes: tuple[str, ...]) -> bool:
    """Whether a node of one of the types holds this one, without a lambda in between."""
    parent = node.parent
    while parent is not None:
        if parent.type in homes:
            return True
        if parent.type == "lambda_expression":
            return False
        if parent.type == "function_definition" and "method" in homes and parent.parent is not None:
            return parent.parent.type == "field_declaration_list"
        parent = parent.parent
    return False


def _redeclared(names: list[tree_sitter.Node], reserved: frozenset[str]) -> Refusal | None:
    """A declaration that hides one of the template's names."""
    for node in names if reserved else ():
        name = (node.text or b"").decode(errors="replace")
        if name in reserved:
            message = f"`{name}` is a name of the template: call it something else"
            return Refusal("redefinition", node.start_point[0], message)
    return None
