"""Takes keys, paths, hosts and names of people out of texts that leave the machine."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

KEY, PATH, HOST, USER, ADDRESS, EMAIL, URL = (
    "[key]", "[path]", "[host]", "[user]", "[address]", "[email]", "[url]"
)  # fmt: skip

_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET, _SHORTEST_NAME = 8, 4
"""Shorter ones would be found inside ordinary words."""
_LONG_NUMBER = 12
_COMMON = frozenset({
    "root", "user", "admin", "test", "guest", "nobody", "runner", "ubuntu", "debian", "default", "main", "data",
    "work", "home", "build", "node", "host", "local", "localhost", "worker", "master", "server", "client", "kernel",
    "cuda", "torch", "float", "half", "char", "const", "shared", "memory", "block", "grid", "warp", "lane", "config",
})  # fmt: skip
"""Names that tell nobody apart and are words of kernels or of prose."""
_ROOTS = (
    "home", "Users", "root", "tmp", "var", "usr", "opt", "etc", "mnt", "media", "srv", "private", "Volumes",
    "workspace", "workspaces", "scratch", "nfs", "lustre", "gpfs", "proc", "dev", "run", "work", "data", "app",
    "code", "project", "projects", "export", "storage", "bin", "sbin", "lib", "lib64", "Library", "Applications",
    "builds", "content",
)  # fmt: skip
"""Folders that absolute paths begin with, beside those of this machine."""

_STOPS = r"\s\"'`<>|:;,)\]}"
_ENDINGS = (
    "com|org|net|edu|gov|mil|int|info|io|ai|dev|app|cloud|eu|de|uk|fr|it|es|nl|se|no|pl|ch|at|be|ru|cn|jp|kr|in|au|ca|"
    "us|br"
)
_LOCAL = "internal|local|lan|corp|intranet|localdomain|cluster|home"

_KEYS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(
        r"\b(?:sk-[A-Za-z0-9_-]{12,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
        r"|xox[abeprs]-[\w-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|nvapi-[\w-]{16,}|pypi-[\w-]{16,}|npm_\w{16,}"
        r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)"
    ),
)
_BEARER = re.compile(
    r"(\bauthorization[\"']?\s*[=:]\s*[\"']?(?:bearer|basic)\s+|\bbearer\s+(?=[^\s\"']*\d))"
    r"[A-Za-z0-9._~+/=-]{6,}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"((?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credentials?)[\w-]*[\"']?\s*[=:]\s*)"
    r"(?:\"[^\"\n]{6,}\"|'[^'\n]{6,}'|(?=[^\s\"',;]*\d)[^\s\"',;\[\](){}]{16,})",
    re.IGNORECASE,
)
"""What is called a key: a quoted text, or a long word with a digit."""
_ANY_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s\"'<>`\])}]+")
_ANY_EMAIL = re.compile(rf"\b[\w.+-]+@(?:[\w-]+\.)+(?:{_ENDINGS}|{_LOCAL})\b(?!\()")
_NUMBERS = re.compile(r"(?<![\w:.])(?:\d{1,3}(?:\.\d{1,3}){3}|(?=[a-fA-F:]*\d)[0-9a-fA-F:]{5,}[0-9a-fA-F])(?!\w|\.\w)")
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")
_ANY_HOST = re.compile(
    rf"\b(?=[\w.]*[\d-][\w.-]*\.(?:{_LOCAL})\b)[a-zA-Z0-9](?:[\w-]*[a-zA-Z0-9])?(?:\.[\w-]+)*\.(?:{_LOCAL})"
    r"(?::\d{1,5})?(?![\w-]|\.\w)"
)
_WINDOWS = re.compile(r"(?<![\w])[A-Za-z]:\\[^\s\"'<>|*?]+|\\\\[\w.-]+\\[^\s\"'<>|*?]+")
_HOME = re.compile(rf"(?:(?<![\w)\]~])~|\$\{{?HOME\}}?)/(?=[\w.])[^{_STOPS}]*")


@dataclass(frozen=True)
class Scrubber:
    """What is taken out beside what has the form of a key, an address or a path."""

    secrets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Absolute folders whose whole content is nobody's business, with blanks in their names or not."""
    roots: tuple[str, ...] = _ROOTS

    @classmethod
    def of_this_machine(cls, environment: Mapping[str, str] | None = None) -> Scrubber:
        """Knows this machine's names and what its environment calls a secret."""
        known = os.environ if environment is None else environment
        secrets = [value for name, value in known.items() if _SECRET_NAMES.search(name) and not _is_limit(value)]
        host = socket.gethostname()
        users = [known.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
        home = Path.home()
        return cls(
            secrets=_longest_first(one.strip() for one in secrets if len(one.strip()) >= _SHORTEST_SECRET),
            hosts=_longest_first(_names([host, host.partition(".")[0], known.get("HOSTNAME", "")])),
            users=_longest_first(_names([*users, _login(), home.name])),
            folders=_longest_first(str(one) for one in (home, Path.cwd()) if len(one.parts) > 2),
            roots=tuple(dict.fromkeys([*_ROOTS, *_top_folders()])),
        )

    def text(self, text: str) -> str:
        """The text without any of it. What was scrubbed stays as it is."""
        for secret in self.secrets:
            text = text.replace(secret, KEY)
        for pattern in _KEYS:
            text = pattern.sub(KEY, text)
        text = _BEARER.sub(rf"\1{KEY}", text)
        text = _NAMED.sub(lambda found: f"{found[1]}{KEY}", text)
        text = _ANY_URL.sub(URL, text)
        text = self._paths(text)
        text = _ANY_EMAIL.sub(EMAIL, text)
        text = _NUMBERS.sub(_address, _MAC.sub(ADDRESS, text))
        text = _ANY_HOST.sub(HOST, text)
        if self._hosts is not None:
            text = self._hosts.sub(HOST, text)
        return self._users.sub(USER, text) if self._users is not None else text

    def value(self, value: Any) -> Any:
        """The same of every text within lists and dictionaries, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key) if isinstance(key, str) else key: self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value

    def _paths(self, text: str) -> str:
        for folder in self.folders:
            text = re.sub(rf"{re.escape(folder)}(?:/[^{_STOPS}]*)?(?![\w.-])", PATH, text)
        text = self._quoted.sub(rf"\1{PATH}\1", text)
        text = self._plain.sub(PATH, text)
        return _HOME.sub(PATH, _WINDOWS.sub(lambda found: PATH, text))

    @cached_property
    def _quoted(self) -> re.Pattern[str]:
        """In quotation marks blanks belong to a path."""
        return re.compile(rf"([\"'`])/(?:{self._tops})/[^\"'`\n]*\1")

    @cached_property
    def _plain(self) -> re.Pattern[str]:
        """A quotient (`a/dev/b`) is none: something stands right before it. Flags of compilers do (`-I/usr`)."""
        return re.compile(rf"(?:(?<=-[ILo])|(?<![\w.)\]}}/]))/(?:{self._tops})/[^{_STOPS}]*")

    @cached_property
    def _tops(self) -> str:
        return "|".join(re.escape(root) for root in sorted(self.roots, key=len, reverse=True))

    @cached_property
    def _hosts(self) -> re.Pattern[str] | None:
        return _words(self.hosts, rf"(?:\.[\w-]+)*\.(?:{_ENDINGS}|{_LOCAL})")

    @cached_property
    def _users(self) -> re.Pattern[str] | None:
        return _words(self.users)


def _is_limit(value: str) -> bool:
    """A number of tokens, as settings of models have it, is no secret."""
    return value.strip().isdigit() and len(value.strip()) < _LONG_NUMBER


def _address(found: re.Match[str]) -> str:
    """What looks like an address and is one."""
    try:
        ipaddress.ip_address(found[0])
    except ValueError:
        return found[0]
    return ADDRESS


def _words(names: Iterable[str], more: str | None = None) -> re.Pattern[str] | None:
    """Whole words that are one of the names; with what may follow."""
    found = "|".join(re.escape(name) for name in names if name)
    return re.compile(rf"(?<![\w-])(?:{found}){f'(?:{more})?' if more else ''}(?![\w-])") if found else None


def _names(names: Iterable[str]) -> list[str]:
    """Those that tell somebody apart."""
    return [name for name in names if len(name) >= _SHORTEST_NAME and name.lower() not in _COMMON]


def _longest_first(names: Iterable[str]) -> tuple[str, ...]:
    """A name within another one must not break it."""
    return tuple(sorted({name for name in names if name}, key=lambda one: (-len(one), one)))


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _top_folders() -> list[str]:
    try:
        return sorted(one.name for one in Path("/").iterdir() if one.is_dir())
    except OSError:
        return []
