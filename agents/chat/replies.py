"""Reply models: pydantic models made from a role's open slots, so that a schema's enums are the legal values left."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from warpsmith.kernels.records import SlotValue

WHY_LENGTH = 240
"""Characters of a reason that are kept."""


class Reply(BaseModel):
    """Base of all replies. Keys that nobody asked for are dropped; the schema forbids them."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})


def _one_line(value: Any) -> Any:
    """The first lines of a reason, as one and not too long."""
    return " ".join(value.split())[:WHY_LENGTH] if isinstance(value, str) else value


Why = Annotated[str, BeforeValidator(_one_line)]


@lru_cache(maxsize=512)
def reply_model(role: str, slots: tuple[tuple[str, tuple[SlotValue, ...]], ...], code: tuple[str, ...]) -> type[Reply]:
    """The reply of a role: `why`, one enum a choice slot, and optional text for each code slot."""
    fields: dict[str, Any] = {"why": (Why, ...)}
    for name, legal in slots:
        fields[name] = (Annotated[cast(Any, Literal)[legal], BeforeValidator(_as_one_of(legal))], ...)
    for name in code:
        fields[name] = (str, Field(default="", description=f"new text of code slot {name}; empty: as it is"))
    return cast(type[Reply], create_model(f"{role.capitalize()}Reply", __base__=Reply, **fields))


def _as_one_of(legal: tuple[SlotValue, ...]) -> Callable[[Any], Any]:
    """Takes `"4"` or `"True"` for the value that is written so; all else is left to the enum."""
    spelled = {str(value).lower(): value for value in legal}

    def convert(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if any(value == one and type(value) is type(one) for one in legal):
            return value
        # True and 1 are equal: a flag must not pass for a number.
        other = str(value) if isinstance(value, bool) else value
        return spelled.get(str(value).strip().lower(), other)

    return convert
