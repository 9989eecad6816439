"""Which problems a suite holds: KernelBench's folders, other folders, list files and single files, and the choice among
them."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.app.suite.records import SuiteProblem
from warpsmith.app.suite.resume import digest, file_of
from warpsmith.kernels.errors import UserError

_LEVEL = re.compile(r"level_?(\d+)", re.IGNORECASE)
_NUMBERED = re.compile(r"(\d+)_(.+)")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_LISTS = (".txt", ".list")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which problems of a suite are wanted. Empty: all."""

    levels: frozenset[int] = frozenset()
    ids: tuple[range, ...] = ()
    filters: tuple[str, ...] = ()

    def takes(self, problem: SuiteProblem) -> bool:
        """Whether a problem is among them; one without a level or a number is not, where these are asked for."""
        if self.levels and problem.level not in self.levels:
            return False
        if self.ids and not any(problem.number in one for one in self.ids):
            return False
        name = f"{problem.key} {problem.name}".lower()
        return not self.filters or any(one in name for one in self.filters)


def parse_choice(level: str | None, ids: str | None, filters: Sequence[str]) -> Choice:
    """`--level 1,2 --ids 1-20,33 --filter conv`. UserError for what is no number."""
    levels = frozenset(number for span in _spans(level, "--level") for number in span)
    return Choice(levels, _spans(ids, "--ids"), tuple(text.lower() for text in filters))


def _spans(text: str | None, option: str) -> tuple[range, ...]:
    found = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        first, dash, last = part.partition("-")
        try:
            begin = int(first)
            end = int(last) if dash else begin
        except ValueError:
            raise UserError(f"{option} {text}: write numbers and ranges with commas between, e.g. 1-20,33") from None
        if end < begin:
            raise UserError(f"{option} {text}: {part.strip()} ends before it begins")
        found.append(range(begin, end + 1))
    if text is not None and not found:
        raise UserError(f"{option} is empty: write numbers and ranges with commas between, e.g. 1-20,33")
    return tuple(found)


def find_problems(targets: Sequence[str], choice: Choice = Choice()) -> tuple[SuiteProblem, ...]:
    """The chosen problems of all targets, each once, by level and number where they have them, else as named.

    A target is a folder (with `levelN` folders below it, or with problem files in it), a list file (`.txt`) or a
    problem as `optimize` takes it. A problem and a line of a list may have constants of their own:
    `PATH[,NAME=LITERAL...]`, with `;` for commas inside of a literal. UserError where a target is missing, holds no
    problem, or nothing of it is chosen.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...]], SuiteProblem] = {}
    for target in targets:
        before = len(found)
        for problem in _of_target(target):
            found.setdefault((problem.path, tuple(sorted(problem.overrides.items()))), problem)
            before = -1
        if before == len(found):
            raise UserError(f"{target} holds no problem: name a folder with *.py files or levelN folders, or a list")
    chosen = [problem for problem in _named_apart(list(found.values())) if choice.takes(problem)]
    if not chosen:
        raise UserError(f"none of the {len(found)} problems is chosen: look at --level, --ids and --filter")
    return tuple(chosen)


def _of_target(target: str) -> Iterator[SuiteProblem]:
    path = Path(target)
    missing = "no such file or folder; check the path"
    if path.is_dir():
        yield from _of_folder(path)
    elif path.suffix in _LISTS and path.is_file():
        yield from _of_list(path)
    elif file_of(target).is_file() or "," not in target:
        yield _problem(target, {}, where=f"{target}: {missing}")
    else:
        name, overrides = _with_constants(target, where=target)
        if Path(name).is_dir() or Path(name).suffix in _LISTS:
            raise UserError(
                f"{target}: NAME=LITERAL stands behind one problem, and {name} is {_kind(Path(name))}: write a list "
                "file (.txt) with PATH,NAME=LITERAL a line, or name the problem's file"
            )
        yield _problem(name, overrides, where=f"{name}: {missing}")


def _kind(path: Path) -> str:
    return "a folder" if path.is_dir() else "a list"


def _of_folder(folder: Path) -> Iterator[SuiteProblem]:
    levels = sorted(
        (int(found[1]), path)
        for path in folder.iterdir()
        if path.is_dir() and (found := _LEVEL.fullmatch(path.name)) is not None
    )
    files = [path for _, level in levels for path in _files(level)] or _files(folder)
    for path in files:
        yield _problem(str(path), {}, where=f"{path}: no such file")


def _files(folder: Path) -> list[Path]:
    """Problem files of one folder, by number where they have one; modules beside them that begin with `_` are none."""
    files = [path for path in folder.glob("*.py") if not path.name.startswith("_")]

    def place(path: Path) -> tuple[int, str]:
        found = _NUMBERED.fullmatch(path.stem)
        return (int(found[1]) if found else 1 << 30, path.name)

    return sorted(files, key=place)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 ({error.reason} at byte {error.start}): save the list as UTF-8"
        ) from error


def _of_list(path: Path) -> Iterator[SuiteProblem]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        name, overrides = _with_constants(text, where=f"{path}:{number}")
        beside = path.parent / name
        target = str(beside) if file_of(str(beside)).exists() else name
        yield _problem(target, overrides, where=f"{path}:{number}: {name}: no such file beside the list or here")


def _with_constants(text: str, *, where: str) -> tuple[str, dict[str, str]]:
    """`PATH[,NAME=LITERAL...]` as path and constants."""
    name, *pairs = (part.strip() for part in text.split(","))
    overrides = {}
    for pair in pairs:
        constant, equals, literal = pair.partition("=")
        if not equals or not literal.strip() or not _IDENTIFIER.fullmatch(constant.strip()):
            raise UserError(f"{where}: {pair!r}: write PATH,NAME=LITERAL with `;` for commas inside")
        _require_syntax(literal.strip().replace(";", ","), pair, where)
        overrides[constant.strip()] = literal.strip().replace(";", ",")
    return name, overrides


def _require_syntax(literal: str, pair: str, where: str) -> None:
    try:
        ast.parse(literal, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{where}: {pair!r}: {literal!r} is no Python literal: write PATH,NAME=LITERAL") from error


def _problem(target: str, overrides: dict[str, str], *, where: str) -> SuiteProblem:
    file = file_of(target)
    if not file.is_file():
        raise UserError(where)
    called = target[len(str(file)) :] if target.startswith(str(file)) else ""
    folder, numbered = _LEVEL.fullmatch(file.resolve().parent.name), _NUMBERED.fullmatch(file.stem)
    level = int(folder[1]) if folder and numbered else None
    number = int(numbered[1]) if numbered else None
    name = file.stem + called.replace(":", ".")
    key = f"L{level}-{number:03d}_{numbered[2]}" if level is not None and number is not None and numbered else name
    if overrides:
        key += "@" + hashlib.sha256(repr(sorted(overrides.items())).encode()).hexdigest()[:6]
    return SuiteProblem(
        key=re.sub(r"[^A-Za-z0-9_.@-]+", "-", key), path=f"{file.resolve()}{called}", name=name, level=level,
        number=number, digest=digest(str(file.resolve())), overrides=overrides,
    )  # fmt: skip


def _named_apart(problems: Sequence[SuiteProblem]) -> list[SuiteProblem]:
    """Files of one name in several folders are told apart by their place."""
    names = Counter(problem.key for problem in problems)
    return [
        problem
        if names[problem.key] == 1
        else problem.model_copy(
            update={"key": f"{problem.key}@{hashlib.sha256(problem.path.encode()).hexdigest()[:6]}"}
        )
        for problem in problems
    ]
