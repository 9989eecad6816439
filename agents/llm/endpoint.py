"""Where a model is served: base URL, model name and the key, which never leaves this object but in a request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit, urlunsplit

from warpsmith.kernels.errors import UserError

OPENAI_URL = "https://api.openai.com/v1"
OWN_KEY, OPENAI_KEY, OPENAI_BASE = "WARPSMITH_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"

IN_PROCESS = "in-process:"
"""What the address of a model of this process begins with; its fingerprint follows."""

_NO_KEY = "none"
"""What is sent where there is no key: the SDK insists on one, servers without keys ignore it."""
_SHORTEST_SECRET = 6
"""A shorter key would be found inside ordinary words."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model of one server."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    key_source: str | None = None
    """The environment variable that the key was taken from."""

    @property
    def host(self) -> str:
        """Host and port."""
        return urlsplit(self.base_url).netloc

    @property
    def local(self) -> bool:
        """Whether the server is on this machine; no proxy is asked then."""
        return urlsplit(self.base_url).hostname in ("localhost", "127.0.0.1", "::1")

    @property
    def in_process(self) -> bool:
        """Whether the model is in this process, where it costs nothing."""
        return self.base_url.startswith(IN_PROCESS)

    @property
    def is_openai(self) -> bool:
        """Whether it is OpenAI's own service, whose abilities are known."""
        return urlsplit(self.base_url).hostname == urlsplit(OPENAI_URL).hostname

    @property
    def sent_key(self) -> str:
        """What goes into the request's header."""
        return self.key or _NO_KEY

    def scrub(self, text: str) -> str:
        """The text without the key, should a server repeat it."""
        if self.key and len(self.key) >= _SHORTEST_SECRET:
            return text.replace(self.key, "[key]")
        return text

    def __str__(self) -> str:
        return self.model if self.is_openai else f"{self.model}@{self.base_url}"


def endpoint(model: str, base_url: str | None = None, environment: Mapping[str, str] | None = None) -> Endpoint:
    """The endpoint of a model. Without URL: $OPENAI_BASE_URL, else OpenAI. $WARPSMITH_API_KEY goes to any server,
    $OPENAI_API_KEY only to OpenAI and to the host of $OPENAI_BASE_URL. UserError for a URL that is none."""
    surroundings = os.environ if environment is None else environment
    usual = surroundings.get(OPENAI_BASE) or OPENAI_URL
    url = normal_url(base_url or usual)
    if not model.strip():
        raise UserError("no model named: write chat:MODEL or chat:MODEL@BASE_URL")
    trusted = {urlsplit(OPENAI_URL).netloc, urlsplit(normal_url(usual)).netloc}
    for name in (OWN_KEY, OPENAI_KEY):
        key = surroundings.get(name, "").strip()
        if key and (name == OWN_KEY or urlsplit(url).netloc in trusted):
            if not (key.isascii() and key.isprintable()) or " " in key:
                # What cannot stand in a header would come back inside of an error's message.
                raise UserError(f"${name} holds a blank, a line break or a letter that is not ASCII: set the key alone")
            return Endpoint(url, model.strip(), key, name)
    return Endpoint(url, model.strip())


def normal_url(text: str) -> str:
    """A base URL without trailing slash; `/v1` is added where it has no path. UserError for anything else."""
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        raise UserError("a server's address is no URL: write http://HOST:PORT/v1 or https://HOST/v1") from None
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"{shown!r} is not a server's address: write http://HOST:PORT/v1 or https://HOST/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UserError(
            f"the address of {shown} carries a password or a query: put the key into ${OWN_KEY}, and only the path "
            "into the address"
        )
    if not _port_is_valid(parts):
        raise UserError(f"{shown!r} has no valid port: write http://HOST:PORT/v1")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return urlunsplit((parts.scheme, parts.netloc.lower(), path, "", ""))


def _port_is_valid(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False
