"""Renders the prompt templates, strictly, and names each by the hash of all the text that goes into it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import jinja2.meta


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system and a user text, and the version of the templates that made them."""

    system: str
    user: str
    version: str
    """`NAME@HASH`: the first 8 hex digits of the SHA-256 over both templates and all that they include."""


def render(name: str, context: Mapping[str, Any]) -> Prompt:
    """The prompt `name` (a role, `writer`, ...). jinja2.UndefinedError where the context lacks a name."""
    return Prompt(text(f"{name}.system", context), text(f"{name}.user", context), version(name))


def text(template: str, context: Mapping[str, Any]) -> str:
    """One template of the folder, without the blank lines that left-out parts leave behind."""
    rendered: str = _environment().get_template(f"{template}.jinja").render(**context)
    lines: list[str] = []
    for line in rendered.split("\n"):
        if line.strip() or (lines and lines[-1].strip()):
            lines.append(line.rstrip())
    return "\n".join(lines).strip()


@cache
def version(name: str) -> str:
    """Name and hash of a prompt's templates with all their fragments."""
    digest = hashlib.sha256()
    for part in sorted({p for end in ("system", "user") for p in _parts(f"{name}.{end}.jinja")}):
        digest.update(f"{part}\0{_source(part)}\0".encode())
    return f"{name}@{digest.hexdigest()[:8]}"


def _parts(template: str) -> set[str]:
    """The template and what it includes, directly or not."""
    named = jinja2.meta.find_referenced_templates(_environment().parse(_source(template)))
    return {template}.union(*(_parts(inner) for inner in named if inner is not None))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    environment.filters["figure"] = figure
    return environment


@cache
def _source(template: str) -> str:
    return resources.files("warpsmith.prompts").joinpath("templates", template).read_text(encoding="utf-8")


def figure(value: float | str | bool | None) -> str:
    """A number with three significant digits, without exponent up to a million; words stay as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}"
