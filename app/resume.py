"""What a resumed run takes from its manifest, and which options of the command line contradict it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import RunManifest

_FIXED = ("device", "arch", "inputs", "mode", "precision", "policy", "seed")
"""Options that a run keeps to its end: its results hold for these values. What is not here it may be given anew."""


class RunConfig(BaseModel):
    """The part of a manifest's `config` that a resumed run goes on with. Older runs may lack names."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    device: Literal["auto", "gpu", "cpu"] = "auto"
    arch: str | None = None
    overrides: dict[str, str] = {}
    inputs: str | None = None
    mode: Literal["eval", "train"] = "eval"
    precision: str = "exact"
    policy: str = "builtin"
    seed: StrictInt = 0
    budget: Annotated[StrictInt, Field(ge=1)] = 64
    verdicts: Annotated[StrictInt, Field(ge=1)] = 4
    minutes: Annotated[float | None, Field(ge=0.0)] = None
    max_cost: Annotated[float | None, Field(ge=0.0)] = None
    max_tokens: Annotated[StrictInt | None, Field(ge=0)] = None
    max_calls: Annotated[StrictInt | None, Field(ge=0)] = None
    price: tuple[str, ...] = ()
    counters: Literal["best", "all", "none"] = "best"


def kept(manifest: RunManifest, folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that come from the run: all that `given`, the options of the command line with their values, leaves
    open. UserError where one of these contradicts the run."""
    try:
        config = RunConfig.model_validate(manifest.config)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, ("config", *first["loc"])))
        remedy = "leave --resume out to start a new run"
        raise UserError(f"{folder / 'manifest.json'}: {place}: {first['msg']}; {remedy}") from error
    told = [*_contradictions(config, manifest, folder, given)]
    if told:
        raise UserError(
            f"{folder} was made otherwise: {'; '.join(told)}. Leave this out to continue the run, or leave --resume "
            "out to start a new one"
        )
    open_ = config.model_fields_set - given.keys()
    return {name: getattr(config, name) for name in open_} | {"overrides": config.overrides}


def _contradictions(config: RunConfig, manifest: RunManifest, folder: Path, given: Mapping[str, Any]) -> Iterator[str]:
    before = config.model_dump() | {"device": _device(manifest), "arch": manifest.arch, "seed": manifest.seed}
    for name in _FIXED:
        if name in given and given[name] not in (before[name], getattr(config, name)):
            had = "was made without" if before[name] is None else f"has {before[name]}"
            yield f"--{name} {given[name]} is given, the run {had}"
    for name, value in given.get("overrides", {}).items():
        if name not in config.overrides:
            yield f"--set {name}={value} is given, the run leaves {name} as the problem has it"
        elif _literal(value) != _literal(config.overrides[name]):
            yield f"--set {name}={value} is given, the run has {name}={config.overrides[name]}"
    if "out" in given and given["out"].resolve() != folder.resolve().parent:
        yield f"--out {given['out']} is given, the run lies in {folder.resolve().parent}"


def _device(manifest: RunManifest) -> str:
    return "gpu" if manifest.device.startswith("gpu:") else "cpu"


def _literal(text: str) -> str:
    """A literal without differences of spelling."""
    try:
        return repr(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
