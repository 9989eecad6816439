"""The grammar of `--policy chat:...` and `local:...`: which model answers for which role, on which server."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.slots import ROLES

PREFIX, LOCAL = "chat:", "local:"
SPEAKERS = (*ROLES, "writer", "interpreter")
"""Who can be given models of its own."""
GRAMMAR = "chat:MODEL[@URL][,MODEL[@URL]...][;ROLE=MODEL[@URL][,...]...]"
"""A model may also be `local:PATH[?OPTION=VALUE&...]`."""

_AT_URL = re.compile(r"@(?=https?://)")
_USER = re.compile(rf"(://|@(?=[^@/\s,;]*:))(?!https?://)(?:(?!;(?:{'|'.join(SPEAKERS)})=)[^/?#\s])*@(?!https?://)")
"""A user and a password before the host; the @ before a server's address is none of them."""
_USER_OF_NO_HOST = re.compile(r"(://)(?![\w.-]+(?::\d+)?@)[^/?#\s,;@]*(@https?://)")
"""The same where a second address follows and not the host: a host with its port is none."""
_QUERY = re.compile(r"(?<=[?#&])([\w.-]+=)?[^&#,;\s']+")
"""A part of a query or fragment behind an address: the name tells nothing."""
_ADDRESS = re.compile(r"://[^,;\s']*")


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """A model's name and the base URL of its server; None: the one of the environment. Or a model of this process."""

    model: str
    base_url: str | None = None
    local: bool = False
    """The model is a path, with options behind a `?`: it runs in this process."""

    def __str__(self) -> str:
        if self.local:
            return f"{LOCAL}{self.model}"
        return self.model if self.base_url is None else f"{self.model}@{self.base_url}"


@dataclass(frozen=True, slots=True)
class Crew:
    """The models of a policy; several of them take turns over the proposals of a round."""

    models: tuple[ModelAddress, ...]
    own: Mapping[str, tuple[ModelAddress, ...]] = field(default_factory=dict)
    """Role -> models that answer for it instead."""

    def pick(self, role: str, index: int) -> tuple[ModelAddress, int]:
        """The model that answers for a role's part of proposal `index`, and which of its samples that is."""
        models = self.own.get(role, self.models)
        return models[index % len(models)], index // len(models)

    @property
    def everybody(self) -> tuple[ModelAddress, ...]:
        """All models, each once."""
        return tuple(dict.fromkeys([*self.models, *(m for own in self.own.values() for m in own)]))


def parse_crew(text: str) -> Crew:
    """The crew that `chat:...` or `local:...` names. UserError says what is wrong and how it is written."""
    head, *overrides = text.split(";")
    if not head.startswith((PREFIX, LOCAL)):
        raise _wrong(text, f"it begins with {PREFIX} or {LOCAL}")
    own: dict[str, tuple[ModelAddress, ...]] = {}
    for part in overrides:
        role, equals, models = part.partition("=")
        role = role.strip()
        if not equals or role not in SPEAKERS:
            raise _wrong(text, f"{part.strip()!r} is not ROLE=MODEL with a role of {', '.join(SPEAKERS)}")
        if role in own:
            raise _wrong(text, f"{role} is given twice: join its models by commas")
        own[role] = _models(text, models)
    crew = _models(text, head)
    urls = {address.base_url for address in crew}
    if len(urls) == 1 and not any(address.local for address in crew):
        # What is told to one server is not sent to another because an address was left out.
        own = {role: tuple(_at(urls, address) for address in every) for role, every in own.items()}
    return Crew(crew, own)


def _at(urls: Collection[str | None], address: ModelAddress) -> ModelAddress:
    (url,) = urls
    return address if address.local or address.base_url else replace(address, base_url=url)


def _models(whole: str, text: str) -> tuple[ModelAddress, ...]:
    return tuple(_address(whole, part.strip().removeprefix(PREFIX)) for part in text.split(","))


def _address(whole: str, text: str) -> ModelAddress:
    if text.startswith(LOCAL):
        return ModelAddress(text.removeprefix(LOCAL), local=True)
    model, *urls = _AT_URL.split(text)
    if not model.strip() or len(urls) > 1:
        raise _wrong(whole, "a model is missing" if not model.strip() else f"{text!r} names two servers")
    if not urls and ("://" in model or (re.search(r"@[\w.-]+(:\d+)?(/|$)", model) and ":" in model.partition("@")[2])):
        raise _wrong(whole, f"the server in {text!r} is written as MODEL@http://HOST:PORT/v1")
    if model.endswith("@"):
        raise _wrong(whole, f"no server behind the @ of {text!r}")
    if re.search(r"\s", text):
        raise _wrong(whole, f"{text!r} holds a blank")
    return ModelAddress(model, urls[0].rstrip("/") if urls else None)


def without_secrets(text: str) -> str:
    """The text with `...` for passwords and the values of queries in addresses, and for nothing else."""
    hidden = _USER_OF_NO_HOST.sub(r"\1...\2", _USER.sub(r"\1...@", text))
    return _ADDRESS.sub(lambda address: _QUERY.sub(r"\1...", address[0]), hidden)


def _wrong(text: str, why: str) -> UserError:
    said = without_secrets(f"--policy {text!r}: {why}")
    return UserError(
        f"{said}. Write {GRAMMAR}, e.g. chat:qwen2.5:7b@http://127.0.0.1:11434/v1 or "
        "'chat:gpt-5,gpt-5-mini;memory=gpt-5' (quoted, because of the semicolon)"
    )
