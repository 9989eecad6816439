"""`warpsmith doctor --server URL`: finds out what a model server does and prints it."""

from __future__ import annotations

import json as jsonlib
import time
from typing import Any

import typer

from warpsmith.agents.llm.client import ChatClient
from warpsmith.agents.llm.endpoint import Endpoint, endpoint
from warpsmith.agents.llm.faults import ExchangeFailed
from warpsmith.agents.llm.probe import Probe, told
from warpsmith.agents.llm.profile import Ability, Profiles, ServerProfile
from warpsmith.app.doctor_checks import Check, State, check
from warpsmith.kernels.errors import UserError

_ANY = "any"
"""Stands for the model while none is named."""
_MEANS: dict[Ability, str] = {
    "enforced": "enforced",
    "json": "gives JSON, but of any shape",
    "ignored": "accepted and ignored",
    "rejected": "rejected",
    "unknown": "not tried",
}
_LISTED = 8


def run_doctor_server(url: str | None, model: str | None, *, json: bool) -> int:
    """Exit code 0 if the server answers chat completions, 4 if not. What was found is kept for later runs."""
    checks, profile, note = examine(url, model, quiet=json)
    if json:
        found = None if profile is None else profile.model_dump(mode="json")
        body = {"checks": [entry.model_dump(mode="json") for entry in checks], "profile": found}
        typer.echo(jsonlib.dumps(body, indent=2))
    else:
        width = max(len(entry.name) for entry in checks)
        for entry in checks:
            remedy = f"\n{'':{width + 8}}{entry.remedy}" if entry.remedy else ""
            typer.echo(f"{entry.state:<6}{entry.name:<{width}}  {entry.detail}{remedy}")
        if note:
            typer.echo(note)
    return 4 if any(entry.state == "fail" for entry in checks) else 0


def examine(
    url: str | None, model: str | None, *, quiet: bool, profiles: Profiles | None = None
) -> tuple[list[Check], ServerProfile | None, str | None]:
    """The checks, the profile where the server answered, and a line on what it took."""
    where = endpoint(model or _ANY, url)
    try:
        with ChatClient(where) as client:
            facts = client.model_facts()
            listed: Check = _listed(where, [name for name, _ in facts])
    except ExchangeFailed as failure:
        if failure.kind not in ("missing", "not_chat", "parameter", "server") or model is None:
            return [check("server", "fail", str(failure))], None, None
        facts, listed = [], check("server", "warn", f"{where.base_url} does not list its models")
    if model is None:
        where = endpoint(_only([name for name, _ in facts], where), url)
    return _probed(where, facts, listed, quiet, profiles or Profiles())


def _probed(
    where: Endpoint, facts: list[tuple[str, dict[str, Any]]], listed: Check, quiet: bool, profiles: Profiles
) -> tuple[list[Check], ServerProfile | None, str | None]:
    names, context = told(facts, where)
    started = time.monotonic()
    # One repetition: where a form makes the server fail, it fails each time.
    with ChatClient(where, retries=1) as client:
        probe = Probe(client, lambda text: None if quiet else typer.echo(f"trying {text}", err=True))
        try:
            profile = probe.run()
        except ExchangeFailed as failure:
            served = f"it serves {', '.join(names[:_LISTED])}" if names else None
            return [listed, check("model", "fail", str(failure), served)], None, None
    profile = profile.model_copy(update={"served": names, "context": context})
    path = profiles.keep(where, profile)
    taken = f"{probe.requests} requests, {probe.tokens} tokens, {time.monotonic() - started:.1f} s"
    kept = f"kept in {path}" if path else "not kept: the cache folder cannot be written"
    return [listed, *_checks(profile)], profile, f"{taken}; {kept}"


def _checks(profile: ServerProfile) -> list[Check]:
    told_context = f"context {profile.context} tokens" if profile.context else "it does not tell its context length"
    thinks = ", thinks before it answers" if profile.thinks else ""
    dialect = " (as structured_outputs)" if profile.schema_dialect == "structured_outputs" else ""
    beside = " (with the schema beside it)" if profile.object_schema else ""
    ladder = profile.ladder(code=False)
    kept = profile.ability(ladder[0]) == "enforced"
    return [
        check("model", "ok", f"{profile.model}: {told_context}{thinks}"),
        check("json_schema", _state(profile.schema_), _MEANS[profile.schema_] + dialect),
        check("tool call", _state(profile.tool), _MEANS[profile.tool]),
        check("json_object", _state(profile.object_), _MEANS[profile.object_] + beside),
        check("stream", "ok", "counts its tokens" if profile.stream_usage else "no count of tokens; it is estimated"),
        check("temperature", "ok", "accepted" if profile.temperature else "only the default; it is left out"),
        check("reply limit", "ok", profile.room),
        check("log-probs", "ok", "given" if profile.logprobs else "not given"),
        check("requests", "ok", "side by side" if profile.parallel else "one at a time: the next breaks one off"),
        check(
            "forms used",
            "ok" if kept else "warn",
            ", then ".join(ladder),
            None if kept else "nothing is enforced here: replies are checked and asked for again, which small models "
            "often do not survive; a server with grammars (llama.cpp, vLLM, SGLang) holds any model to the form",
        ),
    ]  # fmt: skip


def _state(ability: Ability) -> State:
    return "ok" if ability in ("enforced", "json") else "warn"


def _listed(where: Endpoint, names: list[str]) -> Check:
    shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    return check("server", "ok", f"{where.base_url} serves {shown or 'no model that it names'}")


def _only(names: list[str], where: Endpoint) -> str:
    if len(names) == 1:
        return names[0]
    shown = f": it serves {', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''}" if names else ""
    raise UserError(f"name one of the models of {where.base_url} with --model{shown}")
