"""Which role owns a foreign parameter: by patterns of a small file, never by what was recorded."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.slots import ROLES, Role

NAME = "roles.toml"
OTHERWISE: Role = "config"


@dataclass(frozen=True, slots=True)
class RoleMap:
    """Patterns and roles, first match first."""

    patterns: tuple[tuple[str, Role], ...]

    def of(self, parameter: str) -> Role:
        """The role of a parameter."""
        return next((role for pattern, role in self.patterns if fnmatch(parameter.lower(), pattern)), OTHERWISE)


def role_map(folder: Path | None = None) -> RoleMap:
    """The patterns of `folder`/roles.toml, where there is one, before those that come with Warpsmith."""
    own = folder / NAME if folder is not None else None
    first = _patterns(own.read_text("utf-8"), str(own)) if own is not None and own.is_file() else ()
    shipped = files("warpsmith.tools.tables").joinpath(NAME).read_text("utf-8")
    return RoleMap((*first, *_patterns(shipped, NAME)))


def _patterns(text: str, where: str) -> tuple[tuple[str, Role], ...]:
    try:
        found = tomllib.loads(text).get("roles")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f'{where}: not TOML ({error}); write [roles] and lines such as "tile*" = "compute"') from error
    if not isinstance(found, Mapping):
        raise UserError(f'{where}: has no table [roles]; write lines such as "tile*" = "compute" below it')
    named: dict[str, Role] = {role: role for role in ROLES}
    for pattern, role in found.items():
        if role not in named:
            raise UserError(f"{where}: {pattern!r} = {role!r}: no such role; choose one of {', '.join(ROLES)}")
    return tuple((pattern.lower(), named[role]) for pattern, role in found.items())
