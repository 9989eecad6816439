"""The facts of a run, gathered from its folder alone: what the report shows and `report --json` prints."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpsmith.app.report_winner import space_of, winner_facts
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import SCHEMA_VERSION, Event, Outcome, RunManifest
from warpsmith.tools.runs.associations import failure_groups, value_text
from warpsmith.tools.runs.store import RunStore

PAUSE_S = 1800.0
"""A silence longer than this is a run that was left and resumed; it is no time of the search."""

Facts = dict[str, Any]


def gather(store: RunStore) -> Facts:
    """All facts of a run. UserError where nothing was evaluated yet."""
    lines = list(store.lines())
    if not lines:
        raise UserError(
            f"{store.folder} holds no result yet: continue it with --resume {store.folder}, or name another run"
        )
    manifest = store.manifest()
    history = _history(store)
    best = store.best()
    return {
        "schema_version": SCHEMA_VERSION,
        "run": store.run_id,
        "folder": str(store.folder),
        "problem": _problem(manifest),
        "machine": _machine(manifest, lines),
        "settings": _settings(manifest),
        "counts": _counts(store, lines, history),
        "winner": winner_facts(store, manifest, best) if best else None,
        "verdicts": _verdicts(lines),
        "history": history,
        "candidates": _candidates(store, manifest, lines, best),
        "failures": [_failure(group) for group in failure_groups(lines)],
        "audit": _audit(manifest),
        "warnings": list(store.broken),
        "reproduce": _commands(store, manifest, best),
    }


def _problem(manifest: RunManifest) -> Facts:
    config = manifest.config
    space = space_of(manifest)
    kept = config.get("problem")
    ref = kept if isinstance(kept, dict) else {}
    name = Path(manifest.problem_path).stem if manifest.problem_path else manifest.run_id
    return {
        "name": name,
        "path": str(config.get("given") or manifest.problem_path),
        "callable": ref.get("callable"),
        "hash": manifest.problem_hash,
        "overrides": dict(config.get("overrides") or {}),
        "inputs": config.get("inputs"),
        "mode": config.get("mode"),
        "operators": list(space.get("operators") or []),
        "bytes": space.get("bytes"),
        "flops": space.get("flops"),
        "floor_us": space.get("floor_us"),
    }


def _machine(manifest: RunManifest, lines: Sequence[Outcome]) -> Facts:
    isolation = manifest.isolation
    layers = isolation.get("layers")
    profiles = sorted({one.isolation for one in lines if one.isolation})
    return {
        "label": manifest.device,
        "on_gpu": manifest.device.startswith("gpu:"),
        "arch": manifest.arch,
        "driver": manifest.driver,
        "versions": dict(manifest.versions),
        "commit": manifest.commit,
        "model": space_of(manifest).get("device"),
        "isolation": isolation.get("profile") or ", ".join(profiles) or None,
        "isolation_layers": _flat(layers if isinstance(layers, Mapping) else {}),
    }


def _settings(manifest: RunManifest) -> Facts:
    wanted = ("policy", "budget", "verdicts", "minutes", "seed", "precision", "counters")
    return {"created": manifest.created, **{name: manifest.config.get(name) for name in wanted}, "seed": manifest.seed}


def _counts(store: RunStore, lines: Sequence[Outcome], history: Sequence[Facts]) -> Facts:
    latest = store.outcomes()
    return {
        "candidates": len(latest),
        "by_status": dict(sorted(Counter(outcome.status for outcome in latest).items())),
        "failed": sum(not outcome.correct for outcome in latest),
        "full_verdicts": len(_judged_in_full(store, lines)),
        "seconds": history[-1]["seconds"] if history else None,
        "compile_s": _total(one.compile_s for one in lines),
        "verify_s": _total(one.verify_s for one in lines),
        "time_s": _total(one.time_s for one in lines),
    }


def _judged_in_full(store: RunStore, lines: Sequence[Outcome]) -> set[str]:
    """Candidates that were given a full verdict, whatever it was."""
    told = {
        str(event.data.get("candidate"))
        for event in _events(store)
        if event.kind == "outcome" and event.data.get("level") == "full"
    }
    return told | {one.candidate for one in lines if one.status == "ok"}


def _history(store: RunStore) -> list[Facts]:
    """Screened candidates in the order in which they were told, with seconds of the search; where there are no events,
    in the order of the results without times."""
    found: list[Facts] = []
    elapsed, before = 0.0, None
    for event in _events(store):
        at = _stamp(event.at)
        if at is not None:
            step = (at - before).total_seconds() if before is not None else 0.0
            elapsed += step if 0 <= step <= PAUSE_S else 0.0
            before = at
        data = event.data
        if event.kind == "outcome" and data.get("level") == "screen" and isinstance(data.get("candidate"), str):
            found.append({"candidate": data["candidate"], "seconds": elapsed, **_move(data)})
    if not found:
        found = [{"candidate": one.candidate, "seconds": None, "round": None, "role": None} for one in store.outcomes()]
    screened = _costs(store)
    for index, entry in enumerate(found, start=1):
        cost, label = screened.get(entry["candidate"], (None, None))
        entry |= {"index": index, "cost_us": cost, "cost_is": label}
    return found


def _move(data: Mapping[str, Any]) -> Facts:
    return {"round": data.get("round"), "role": data.get("role")}


def _costs(store: RunStore) -> dict[str, tuple[float | None, str | None]]:
    """Cost of every correct candidate with its label."""
    found: dict[str, tuple[float | None, str | None]] = {}
    for outcome in store.outcomes():
        cost = outcome.cost_us
        if outcome.correct and cost is not None and isfinite(cost):
            found[outcome.candidate] = (cost, label_of(outcome))
    return found


def label_of(outcome: Outcome) -> str | None:
    """`measured` or `estimated`: how an outcome's cost was had."""
    if outcome.time_us is not None:
        return "measured"
    return "estimated" if outcome.estimated_us is not None else None


def _candidates(store: RunStore, manifest: RunManifest, lines: Sequence[Outcome], best: Outcome | None) -> list[Facts]:
    families = space_of(manifest).get("families") or {}
    full = _judged_in_full(store, lines)
    rows = []
    for index, outcome in enumerate(store.outcomes(), start=1):
        cost = outcome.cost_us if outcome.correct else None
        rows.append(
            {
                "index": index,
                "candidate": outcome.candidate,
                "parent": outcome.parent,
                "best": best is not None and outcome.candidate == best.candidate,
                "status": outcome.status,
                "level": "full" if outcome.candidate in full else "screen",
                "family": outcome.family,
                "provenance": outcome.provenance,
                "precision_class": outcome.precision_class,
                "cost_us": cost if cost is not None and isfinite(cost) else None,
                "cost_is": label_of(outcome) if cost is not None else None,
                "error_ratio": outcome.error_ratio,
                "registers": outcome.registers,
                "spills": outcome.spills,
                "shared_bytes": outcome.shared_bytes,
                "slots": {name: value_text(value) for name, value in outcome.slots.items()},
                "differs": _differs(outcome, (families.get(outcome.family) or {}).get("slots") or {}),
                "failure": outcome.failure.model_dump(mode="json") if outcome.failure else None,
            }
        )
    return rows


def _differs(outcome: Outcome, known: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The slots that are not naive; all of them where the run does not say what is."""
    return {
        name: value_text(value)
        for name, value in outcome.slots.items()
        if name not in known or known[name].get("naive") != value
    }


def _verdicts(lines: Sequence[Outcome]) -> list[Facts]:
    """The full verdicts with their times and ratios, the fastest first."""
    found = {one.candidate: one for one in lines if one.status == "ok"}
    ranked = sorted(found.values(), key=lambda one: (one.cost_us is None, one.cost_us or 0.0, one.candidate))
    return [
        {
            "candidate": one.candidate,
            "family": one.family,
            "verified_on": one.verified_on,
            "provenance": one.provenance,
            "precision_class": one.precision_class,
            "cost_us": one.cost_us,
            "cost_is": label_of(one),
            "time_us": one.time_us.model_dump() if one.time_us else None,
            "speedup": {name: ratio.model_dump() for name, ratio in (one.speedup or {}).items()},
            "error_ratio": one.error_ratio,
            "max_abs_error": one.max_abs_error,
            "own_share": one.own_share,
            "shape_specific": one.shape_specific,
        }
        for one in ranked
    ]


def _failure(group: Any) -> Facts:
    plain = asdict(group)
    for one, source in zip(plain["associations"], group.associations, strict=True):
        one["setting"] = dict(source.setting)
        one["lift"] = source.lift
    plain["candidates"] = list(plain["candidates"])
    return dict(plain)


def _audit(manifest: RunManifest) -> Facts:
    """Which trivial answers the problem's checks were tried with, and which they take for right."""
    kept = manifest.audit
    tried, accepted = (_texts(kept.get(name)) for name in ("tried", "accepted"))
    warnings = [f"this problem cannot tell {answer} from a right answer" for answer in accepted]
    if kept and not tried:
        warnings.append("no trivial answer could be tried: nothing is known of what the checks accept")
    return {"tried": tried, "accepted": accepted, "payable": kept.get("payable"), "warnings": warnings}


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else []


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested document as dotted names; empty parts are left out."""
    found: dict[str, str] = {}
    for name, one in value.items():
        if isinstance(one, Mapping):
            found |= _flat(one, f"{prefix}{name}.")
        elif isinstance(one, list | tuple):
            if one:
                found[f"{prefix}{name}"] = ", ".join(str(part) for part in one)
        elif one is not None and one != "":
            found[f"{prefix}{name}"] = str(one)
    return found


def _commands(store: RunStore, manifest: RunManifest, best: Outcome | None) -> list[Facts]:
    config = manifest.config
    problem = [str(config.get("given") or manifest.problem_path)]
    same: list[str] = []
    for name, value in (config.get("overrides") or {}).items():
        same += ["--set", f"{name}={value}"]
    if config.get("inputs"):
        same += ["--inputs", str(config["inputs"])]
    if config.get("mode") == "train":
        same += ["--mode", "train"]
    if not manifest.device.startswith("gpu:"):
        same += ["--device", "cpu", "--arch", manifest.arch]
    search = ["--policy", str(config.get("policy", "builtin")), "--budget", str(config.get("budget", 64))]
    search += ["--seed", str(manifest.seed)]
    lines = [("The search again", ["optimize", *problem, *same, *search])]
    if best is not None:
        lines.append(("The winner judged again", ["judge", *problem, str(store.folder / "best"), *same]))
        lines.append(("The winner as a PyTorch module", ["export", str(store.folder), "--as", "model_new"]))
    return [{"what": what, "command": shlex.join(["warpsmith", *words])} for what, words in lines]


def _events(store: RunStore) -> list[Event]:
    """Events of the run; a file that cannot be read takes the times, not the report."""
    try:
        return store.events()
    except (ValidationError, OSError, json.JSONDecodeError):
        return []


def _stamp(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _total(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
