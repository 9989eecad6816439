"""Kernel Tuner's T4 results format (schema 1.0.0): evaluations of our runs in it, and any such file as a table.

Schema: github.com/odgaard/TuningSchema, branch T4. Times in our files are milliseconds, as in Kernel Tuner's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure, Outcome, SlotValue
from warpsmith.kernels.slots import ROLES, Role
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.tables.roles import RoleMap
from warpsmith.tools.tables.table import Entry, Key, Table, make_table

VERSION = "1.0.0"
Invalidity = Literal["timeout", "compile", "runtime", "correctness", "constraints", "correct"]

_MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "ns": 1e-3, "": 1e3}
"""By the unit of a measurement; one without a unit is in milliseconds, as Kernel Tuner writes it."""
_STAGES: Mapping[str, Literal["compile", "launch", "time", "verify"]] = {
    "compile": "compile", "runtime": "launch", "timeout": "time", "correctness": "verify",
}  # fmt: skip
_WORDS: Mapping[str, Invalidity] = {
    "ok": "correct", "screened": "correct", "compile_error": "compile", "rejected": "compile", "hang": "timeout",
    "wrong": "correctness", "suspicious": "correctness",
}  # fmt: skip
"""Our status in the format's words; what is not here failed at run time."""


class Measurement(BaseModel):
    """One figure of a configuration."""

    name: str
    value: Any = None
    unit: str = ""


class Result(BaseModel):
    """One configuration; fields that the format allows and nobody here needs are let through."""

    configuration: dict[str, Any]
    invalidity: Invalidity
    objectives: list[str] = []
    measurements: list[Measurement] = []


class Document(BaseModel):
    """A results file."""

    schema_version: str
    results: list[Result]
    metadata: dict[str, Any] = Field(default_factory=dict)


# reading


def looks_like_t4(text: str) -> bool:
    """Whether a JSON text is meant as a results file."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and "results" in found


def read_t4(path: Path, roles: RoleMap) -> Table:
    """The table in a results file; a file of ours says which role owns what. UserError says what is wrong with it."""
    try:
        document = Document.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: not a T4 results file: {place}: {first['msg']}") from error
    results = [r for r in document.results if r.invalidity != "constraints"]
    if not results:
        raise UserError(f"{path}: holds no result of a configuration")
    parameters = list(results[0].configuration)
    rows = [_row(path, number, result, parameters) for number, result in enumerate(results, 1)]
    own = document.metadata.get("warpsmith")
    said = own if isinstance(own, dict) else {}
    owners = _owners(said.get("roles"))
    naive = said.get("naive")
    name = path.name.removesuffix(".json").removesuffix(".t4")
    table_roles = {parameter: owners.get(parameter, roles.of(parameter)) for parameter in parameters}
    return make_table(name, parameters, rows, table_roles, naive if isinstance(naive, dict) else None)


def _row(path: Path, number: int, result: Result, parameters: Sequence[str]) -> tuple[Key, Entry]:
    if set(result.configuration) != set(parameters):
        raise UserError(f"{path}: result {number}: its parameters are not those of the first result")
    key: Key = tuple(_slot_value(result.configuration[name]) for name in parameters)
    if result.invalidity != "correct":
        stage = _STAGES[result.invalidity]
        return key, Entry(None, failure=Failure(stage=stage, message=result.invalidity))
    wanted = result.objectives[0] if result.objectives else "time"
    for one in result.measurements:
        number_there = isinstance(one.value, int | float) and not isinstance(one.value, bool) and one.value > 0
        if one.name == wanted and number_there and one.unit in _MICROSECONDS:
            return key, Entry(float(one.value) * _MICROSECONDS[one.unit])
    raise UserError(f"{path}: result {number} is called correct, but has no measurement {wanted!r} in s, ms, us or ns")


def _slot_value(value: Any) -> SlotValue:
    """Integers, also as 4.0, texts and truth values as they are; anything else as text."""
    if isinstance(value, bool | int | str):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else str(value)


def _owners(said: Any) -> dict[str, Role]:
    named: dict[str, Role] = {role: role for role in ROLES}
    pairs = said.items() if isinstance(said, dict) else ()
    return {slot: named[role] for slot, role in pairs if role in named}


# writing


def t4_documents(store: RunStore) -> dict[str, dict[str, Any]]:
    """Family -> a results file with every evaluation of it, in the order of the run. Free-form kernels have no
    parameters and are left out. Times are measured ones; where none was measured the objective is `estimated_time`."""
    at = {str(e.data.get("candidate")): e.at for e in store.events() if e.kind == "outcome"}
    roles = _roles_by_edit(store)
    families: dict[str, list[Outcome]] = {}
    for outcome in store.outcomes():
        if outcome.slots and outcome.status != "infrastructure_error":
            families.setdefault(outcome.family, []).append(outcome)
    return {family: _document(store, found, roles, at) for family, found in families.items()}


def _document(
    store: RunStore, outcomes: Sequence[Outcome], roles: Mapping[str, Role], at: Mapping[str, str]
) -> dict[str, Any]:
    manifest = store.manifest()
    names = [name for name in outcomes[0].slots if not any(_is_text(o.slots.get(name)) for o in outcomes)]
    objective = "time" if any(o.time_us for o in outcomes) else "estimated_time"
    first = next((o for o in outcomes if o.parent is None), outcomes[0])
    return {
        "schema_version": VERSION,
        "results": [_result(o, names, objective, at.get(o.candidate)) for o in outcomes],
        "metadata": {
            "timeunit": "milliseconds",
            "warpsmith": {
                "run": store.run_id, "family": outcomes[0].family, "problem_hash": manifest.problem_hash,
                "device": manifest.device, "arch": manifest.arch,
                "roles": {name: roles[name] for name in names if name in roles},
                "naive": {name: first.slots[name] for name in names},
            },
        },
    }  # fmt: skip


def _result(outcome: Outcome, names: Sequence[str], objective: str, at: str | None) -> dict[str, Any]:
    figures = {
        "time": (outcome.time_us.p50 / 1e3 if outcome.time_us else None, "ms"),
        "estimated_time": (outcome.estimated_us / 1e3 if outcome.estimated_us is not None else None, "ms"),
        "registers": (outcome.registers, ""), "spills": (outcome.spills, "bytes"),
        "shared_bytes": (outcome.shared_bytes, "bytes"),
    }  # fmt: skip
    invalidity = _WORDS.get(outcome.status, "runtime")
    if invalidity == "correct" and figures[objective][0] is None:
        invalidity = "runtime"
    spent = {"compilation_time": outcome.compile_s, "validation": outcome.verify_s, "benchmark": outcome.time_s}
    return {
        **({"timestamp": at} if at else {}),
        "configuration": {name: outcome.slots[name] for name in names},
        "objectives": [objective],
        "times": {name: s * 1e3 for name, s in spent.items() if s is not None},
        "invalidity": invalidity,
        "correctness": 1 if outcome.correct else 0,
        "measurements": [
            {"name": name, "value": value, "unit": unit} for name, (value, unit) in figures.items() if value is not None
        ],
    }


def _is_text(value: SlotValue | None) -> bool:
    """Whether a slot holds code, which may be none at all: such a text is no value of a parameter."""
    return value is None or (isinstance(value, str) and (not value or any(mark in value for mark in "\n; ")))


def _roles_by_edit(store: RunStore) -> dict[str, Role]:
    """Slot -> its owner, as far as the run's proposals tell: whoever changed a slot owns it."""
    named: dict[str, Role] = {role: role for role in ROLES}
    found: dict[str, Role] = {}
    for event in store.events():
        edits = event.data.get("edits") if event.kind == "proposed" else None
        for role, own in (edits or {}).items():
            found |= {slot: named[role] for slot in own if role in named}
    return found
