"""The winner's part of the report: why it won, where it comes from, where it stands, what it is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from warpsmith.app.wording import share_text
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Candidate, Counters, KernelStep, Outcome, RunManifest, SlotValue
from warpsmith.kernels.slots import ROLES
from warpsmith.tools.profiling.counters import of_role, source_of
from warpsmith.tools.runs.associations import value_text
from warpsmith.tools.runs.store import RunStore

_MOST_SAMPLES = 400
"""Samples of a contender that are shown."""

Facts = dict[str, Any]


def winner_facts(store: RunStore, manifest: RunManifest, best: Outcome) -> Facts:
    """Everything about the fastest verified candidate. What the run folder lacks is None."""
    candidate = _candidate(store, best.candidate)
    space = space_of(manifest)
    return {
        "outcome": best.model_dump(mode="json"),
        "cost_us": best.cost_us,
        "cost_is": "measured" if best.time_us else "estimated",
        "provenance_text": _share(best),
        "slots": _slots(space, best),
        "against": _against(store, space, best),
        "lineage": _lineage(store, best.candidate),
        "roofline": _roofline(store, space, best),
        "counters": _counters(best.counters),
        "samples": _samples(store, best),
        "plan": _plan(candidate, best) if candidate else None,
        "source": _source(candidate) if candidate else None,
    }


def space_of(manifest: RunManifest) -> Mapping[str, Any]:
    """What the run recorded of its search space (`report_space`); empty where it recorded none."""
    space = manifest.config.get("space")
    return space if isinstance(space, dict) else {}


def _share(best: Outcome) -> str | None:
    if best.own_share is None:
        return None
    return share_text(best.own_share, len(best.steps_us) if best.steps_us else None)


def _candidate(store: RunStore, candidate_id: str) -> Candidate | None:
    try:
        return store.get_candidate(candidate_id)
    except UserError:
        return None


def _slots(space: Mapping[str, Any], best: Outcome) -> list[Facts]:
    """Each slot of the winner's family: owner, naive, sensible and winning value."""
    known = ((space.get("families") or {}).get(best.family) or {}).get("slots") or {}
    rows = []
    for name, value in best.slots.items():
        slot = known.get(name) or {}
        row = {
            "slot": name,
            "owner": slot.get("owner"),
            "kind": slot.get("kind"),
            "doc": slot.get("doc"),
            "value": value_text(value),
        }
        for other in ("naive", "sensible"):
            row[other] = value_text(slot[other]) if other in slot else None
        row["changed"] = row["naive"] is not None and row["naive"] != row["value"]
        rows.append(row)
    return rows


def _against(store: RunStore, space: Mapping[str, Any], best: Outcome) -> list[Facts]:
    """The naive and the sensible kernel of the winner's family, where the run evaluated them under the same label."""
    known = ((space.get("families") or {}).get(best.family) or {}).get("slots") or {}
    found = []
    for name in ("naive", "sensible"):
        values = {slot: facts.get(name) for slot, facts in known.items()}
        for outcome in store.outcomes() if values else ():
            cost = outcome.cost_us
            alike = outcome.family == best.family and dict(outcome.slots) == values
            if not alike or not outcome.correct or cost is None or best.cost_us is None:
                continue
            if bool(outcome.time_us) == bool(best.time_us):
                found.append(
                    {"name": name, "candidate": outcome.candidate, "cost_us": cost, "ratio": cost / best.cost_us}
                )
            break
    return found


def _lineage(store: RunStore, candidate_id: str) -> list[Facts]:
    """From the first ancestor to the winner: what each step changed and what it gained."""
    line: list[Candidate] = []
    current = _candidate(store, candidate_id)
    seen: set[str] = set()
    while current is not None and current.id not in seen:
        seen.add(current.id)
        line.append(current)
        current = _candidate(store, current.parent) if current.parent else None
    steps: list[Facts] = []
    before: Candidate | None = None
    for one in reversed(line):
        outcome = store.outcome(one.id)
        cost = outcome.cost_us if outcome is not None and outcome.correct else None
        last = steps[-1]["cost_us"] if steps else None
        steps.append(
            {
                "candidate": one.id,
                "family": one.family,
                "status": outcome.status if outcome else None,
                "cost_us": cost,
                "gain": last / cost if last and cost else None,
                "changes": _changes(before, one) if before else [],
            }
        )
        before = one
    return steps


def _changes(before: Candidate, after: Candidate) -> list[Facts]:
    if before.family != after.family:
        return [{"slot": "family", "from": before.family, "to": after.family}]
    return [
        {"slot": name, "from": _text(before.values.get(name)), "to": _text(after.values.get(name))}
        for name in dict.fromkeys([*before.values, *after.values])
        if before.values.get(name) != after.values.get(name)
    ]


def _text(value: SlotValue | None) -> str:
    return "–" if value is None else value_text(value)


def _roofline(store: RunStore, space: Mapping[str, Any], best: Outcome) -> Facts | None:
    """Where the winner stands below the device's limits, by the bytes and FLOPs that the problem needs at least."""
    device, moved, flops = space.get("device"), space.get("bytes"), space.get("flops")
    cost = best.cost_us
    if not device or not moved or cost is None or cost <= 0:
        return None
    alike = [one for one in store.outcomes() if one.correct and bool(one.time_us) == bool(best.time_us)]
    floor_us = space.get("floor_us") or None
    return {
        "bytes": moved,
        "flops": flops,
        "intensity": flops / moved if flops else None,
        "bytes_per_s": device["dram_bytes_per_s"],
        "flops_per_s": device["fp32_flops"],
        "achieved_bytes_per_s": moved / cost * 1e6,
        "achieved_flops_per_s": flops / cost * 1e6 if flops else None,
        "fraction": floor_us / cost if floor_us else None,
        "floor_us": floor_us,
        "costs_us": [one.cost_us for one in alike if one.cost_us and isfinite(one.cost_us)],
        "baselines_us": {
            name: ratio.value * cost for name, ratio in (best.speedup or {}).items() if best.time_us is not None
        },
    }


def _counters(counters: Counters | None) -> Facts | None:
    """The table of counters by role: only what some kernel of the plan has."""
    if counters is None:
        return None
    kernels = list(counters.kernels)
    roles = []
    for role in ROLES:
        rows = [
            {
                "name": metric.name,
                "unit": metric.unit,
                "meaning": metric.meaning,
                "source": source_of(metric.name, counters.source),
                "values": {kernel: counters.kernels[kernel].get(metric.name) for kernel in kernels},
            }
            for metric in of_role(role)
            if any(metric.name in counters.kernels[kernel] for kernel in kernels)
        ]
        if rows:
            roles.append({"role": role, "metrics": rows})
    return {"source": counters.source, "kernels": kernels, "roles": roles}


def _samples(store: RunStore, best: Outcome) -> dict[str, list[float]] | None:
    """Raw timing samples by contender, thinned out evenly; None where the run keeps none that can be read."""
    if best.samples is None:
        return None
    try:
        document = json.loads(store.get_blob(best.samples))
        table = document.get("samples", document)
        found = {str(name): [float(value) for value in values] for name, values in table.items()}
    except (UserError, ValueError, TypeError, AttributeError):
        return None
    return {name: _thinned(values) for name, values in found.items()}


def _thinned(values: Sequence[float]) -> list[float]:
    step = -(-len(values) // _MOST_SAMPLES) or 1
    return list(values[::step])


def _plan(candidate: Candidate, best: Outcome) -> Facts:
    """The launch plan, a row a step, with measured times where there are any."""
    times = best.steps_us if best.steps_us and len(best.steps_us) == len(candidate.plan.steps) else None
    total = sum(times) if times else None
    steps = []
    for index, step in enumerate(candidate.plan.steps):
        own = isinstance(step, KernelStep)
        row: Facts = {"step": index + 1, "own": own, "time_us": times[index] if times else None}
        row["share"] = times[index] / total if times and total else None
        row["args"] = [_argument(arg) for arg in step.args]
        if isinstance(step, KernelStep):
            row |= {"what": step.kernel, "grid": list(step.grid), "block": list(step.block)}
            row |= {"cluster": list(step.cluster), "shared_bytes": step.shared_bytes, "cooperative": step.cooperative}
        else:
            row |= {"what": f"aten::{step.library} → {step.out}", "cooperative": False}
        steps.append(row)
    buffers = [
        {"name": name, "dtype": one.dtype, "shape": list(one.shape), "init": one.init}
        for name, one in candidate.plan.buffers.items()
    ]
    return {"steps": steps, "buffers": buffers, "prepare": len(candidate.plan.prepare)}


def _argument(arg: str | Mapping[str, int | float]) -> str:
    return arg if isinstance(arg, str) else ", ".join(f"{kind} {value}" for kind, value in arg.items())


def _source(candidate: Candidate) -> list[Facts]:
    """The source line by line, each with the slot whose text it is."""
    slots: dict[int, str] = {}
    for name, (first, last) in candidate.slot_lines.items():
        for line in range(first, last + 1):
            slots[line] = name
    return [
        {"line": number, "text": text, "slot": slots.get(number)}
        for number, text in enumerate(candidate.source.splitlines(), start=1)
    ]
