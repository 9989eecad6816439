"""Policies by the names that the command line knows."""

from __future__ import annotations

import re
from collections.abc import Callable

from warpsmith.agents.baselines import CostModelPolicy, DefaultPolicy, RandomPolicy
from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.chat.grammar import GRAMMAR, LOCAL, PREFIX, Crew, ModelAddress, parse_crew
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.local.address import WRITES_FROM, find_model, parse
from warpsmith.agents.policy import Policy
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.search.coordinate import CoordinatePolicy
from warpsmith.agents.search.genetic import GeneticPolicy
from warpsmith.agents.search.kernel_tuner import PREFIX as KERNEL_TUNER
from warpsmith.agents.search.kernel_tuner import kernel_tuner_policy
from warpsmith.agents.search.tpe import TpePolicy
from warpsmith.agents.search.transfer import PREFIX as TRANSFER
from warpsmith.agents.search.transfer import transfer_policy
from warpsmith.agents.slots.policy import PREFIX as SLOTS
from warpsmith.agents.slots.policy import slot_policy
from warpsmith.kernels.errors import UserError

POLICIES: dict[str, Callable[[], Policy]] = {
    "builtin": BuiltinPolicy,
    "random": RandomPolicy,
    "default": DefaultPolicy,
    "cost-model": CostModelPolicy,
    "tpe": TpePolicy,
    "genetic": GeneticPolicy,
    "coordinate": CoordinatePolicy,
}
WITH_DETAILS: dict[str, Callable[[str], Policy]] = {
    TRANSFER: transfer_policy,
    KERNEL_TUNER: kernel_tuner_policy,
    SLOTS: slot_policy,
}
"""Policies whose name says more behind a colon."""


_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", re.IGNORECASE)


def make_policy(name: str, resources: PolicyResources | None = None) -> Policy:
    """The policy of that name; UserError lists what there is. Policies that ask models need the resources of a run."""
    crew = crew_of(name)
    if crew is None:
        prefix = _prefix(name)
        return POLICIES[name]() if prefix is None else WITH_DETAILS[prefix](name)
    if resources is None:
        raise ValueError(f"{name} needs the resources of a run")
    from warpsmith.agents.chat.policy import ChatPolicy

    return ChatPolicy(name, crew, resources)


def crew_of(name: str) -> Crew | None:
    """The models that a policy asks, or None where it asks none. UserError for names and grammar that do not
    exist, for servers' addresses that are none or carry a secret, and for local models that are not there."""
    if name.startswith((PREFIX, LOCAL)):
        crew = parse_crew(name)
        for address in crew.everybody:
            if address.local:
                find_model(parse(address.model)[0])
            else:
                endpoint(address.model, address.base_url)
        return crew
    if name not in POLICIES and _prefix(name) is None:
        known = f"{', '.join(POLICIES)}, {TRANSFER}PATH, {SLOTS}PATH, {GRAMMAR}, or {LOCAL}PATH"
        raise UserError(f"unknown policy {name!r}: choose one of {known}")
    return None


def _prefix(name: str) -> str | None:
    return next((prefix for prefix in WITH_DETAILS if name.startswith(prefix)), None)


def writes_kernels(crew: Crew | None) -> bool:
    """Whether a model of the crew may be asked for whole kernels: a small one is not, unless it is named the writer or
    told so by `?code=on`. A server does not tell how large its models are, but most names do."""
    if crew is None:
        return False
    return any(not address.local for address in crew.own.get("writer", ())) or any(
        map(_writes, crew.own.get("writer", crew.models))
    )


def _writes(address: ModelAddress) -> bool:
    if not address.local:
        parameters = size_in(address.model)
    else:
        path, settings = parse(address.model)
        if settings.code != "auto":
            return settings.code == "on"
        files = find_model(path)
        parameters = files.parameters() or size_in(files.name)
    return parameters is None or parameters >= WRITES_FROM


def size_in(name: str) -> int | None:
    """Parameters by a model's name, as `135M` or `7b` in it tell; None where it tells none."""
    found = _SIZE.search(name)
    return None if found is None else round(float(found[1]) * {"m": 1e6, "b": 1e9}[found[2].lower()])
