"""What a role's prompt says: its context from the request, and what is left out first where the prompt is too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from warpsmith.agents.chat.legal import OpenSlot
from warpsmith.agents.complaint import Complaint, complaint_of
from warpsmith.agents.llm.forms import instruction, wire_schema
from warpsmith.agents.observation import Move, Observation
from warpsmith.agents.policy import Request
from warpsmith.agents.resources import PolicyResources, ProblemText
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.slots import Slot, Values
from warpsmith.prompts.render import Prompt, figure, render
from warpsmith.prompts.tokens import estimate, estimate_chat
from warpsmith.tools.profiling.counters import METRICS

LIMIT = 1_500
"""Tokens of a prompt with the words that ask for the form of its reply."""
MARGIN = 30
"""Kept free of the limit: the count is an estimate."""
COUNTERS = 24
SAID = 3
"""Of what the person said, the latest that are told."""
FIGURES: dict[str, tuple[str, str]] = {
    "launch_overhead_us": ("us", "time of a launch that is not the kernel's"),
    "roofline_fraction": ("", "floor over time; 1 is the best there can be"),
    "error_ratio": ("", "error against fp64 over PyTorch's own"),
    "max_abs_error": ("", "largest difference from fp64"),
}
"""Figures of an outcome that are no counters: unit and meaning."""
_MEANINGS = {metric.name: (metric.unit, metric.meaning) for metric in METRICS}


@dataclass(frozen=True, slots=True)
class RoleView:
    """All that a role is told in one question, in pieces that can be left out as wholes."""

    request: Request
    role: str
    base: Values
    open: tuple[OpenSlot, ...]
    code: tuple[Slot, ...]
    """Code slots that are shown and may be rewritten."""
    unseen: tuple[str, ...] = ()
    """Code slots whose text does not fit."""
    note: str = ""
    moves: int = 8
    counters: int = COUNTERS
    others: bool = True
    meanings: bool = True
    docs: bool = True
    errors: int = 5
    limits: bool = True
    region: bool = True


def fitted(view: RoleView, resources: PolicyResources, schema: int) -> tuple[RoleView, Prompt]:
    """The view with as much as fits beside `schema` tokens, and its prompt. What matters least goes first, each piece
    as a whole."""
    prompt = prompt_of(view, resources)
    for shorter in _SHORTER:
        if _length(prompt) + schema <= LIMIT - MARGIN:
            break
        view = shorter(view)
        prompt = prompt_of(view, resources)
    while view.code and _length(prompt) + schema > LIMIT - MARGIN:
        view = _without_longest(view)
        prompt = prompt_of(view, resources)
    return view, prompt


_SHORTER: tuple[Callable[[RoleView], RoleView], ...] = (
    lambda view: replace(view, others=False),
    lambda view: replace(view, moves=5),
    lambda view: replace(view, counters=10),
    lambda view: replace(view, meanings=False),
    lambda view: replace(view, errors=2),
    lambda view: replace(view, moves=3),
    lambda view: replace(view, counters=5),
    lambda view: replace(view, limits=False),
    lambda view: replace(view, region=False),
    lambda view: replace(view, moves=0, counters=0),
)


def prompt_of(view: RoleView, resources: PolicyResources) -> Prompt:
    """The prompt of a view, however long."""
    request, observation = view.request, view.request.observations.get(view.role)
    context: dict[str, Any] = {
        "role": view.role,
        "round": request.kind,
        "problem": problem_facts(resources.problem),
        "device": {"name": resources.device.name, "arch": resources.device.arch,
                   "limits": device_limits(resources.device, brief=not view.limits)},
        "slots": [_slot(entry, view) for entry in view.open],
        "code": [{"name": s.name, "doc": s.doc, "now": view.base.get(s.name, s.default)} for s in view.code],
        "unseen_code": view.unseen,
        "region": resources.problem.lines if view.region else (),
        "moves": _moves(observation, view),
        "counters": _counters(observation, view),
        "others": _others(observation) if view.others else [],
        "failure": _failure(request.complaint, view) if request.kind == "repair" else None,
        "note": view.note,
        "said": request.notes[-SAID:],
        **_standing(request, resources),
    }  # fmt: skip
    return render(view.role, context)


def device_limits(device: DeviceModel, *, brief: bool = False) -> list[str]:
    """The device's limits and rates as short phrases; `brief`: what a launch may not exceed."""
    kib = f"{device.shared_per_block // 1024} KiB shared memory"
    block = f"per block at most 1024 threads and {kib}"
    if brief:
        return [block]
    return [
        f"{device.sms} multiprocessors (SMs)", block,
        f"per SM {device.threads_per_sm} threads, {device.registers_per_sm} registers, "
        f"{device.shared_per_sm // 1024} KiB shared memory",
        f"memory {figure(device.dram_bytes_per_s / 1e12)} TB/s", f"L2 {device.l2_bytes >> 20} MiB",
        f"fp32 {figure(device.fp32_flops / 1e12)} TFLOP/s", f"a launch costs about {figure(device.launch_us)} us",
    ]  # fmt: skip


@lru_cache(maxsize=512)
def form_tokens(reply: type[BaseModel], code: tuple[str, ...]) -> int:
    """What the words cost that ask for a reply's form, on the rung where they are the longest."""
    whole = instruction("object", wire_schema(reply), ())
    return max(estimate(whole), estimate(instruction("text", wire_schema(reply, code), code)))


def _length(prompt: Prompt) -> int:
    return estimate_chat((prompt.system, prompt.user))


def problem_facts(problem: ProblemText) -> dict[str, Any]:
    """The problem as the prompts' fragment wants it."""
    return {
        "kind": problem.kind, "operators": problem.operators, "inputs": problem.inputs, "outputs": problem.outputs,
        "megabytes": problem.floor_bytes / 1e6, "megaflops": problem.flops / 1e6,
    }  # fmt: skip


def _standing(request: Request, resources: PolicyResources) -> dict[str, Any]:
    """Floor, incumbent and the distance between them."""
    incumbent, floor = request.incumbent, resources.problem.floor_us
    cost = incumbent.cost if incumbent else None
    summary: Mapping[str, Any] = next((o.summary for o in request.observations.values()), {})
    return {
        "floor_us": floor,
        "best": {
            "us": cost,
            "label": summary.get("cost_is") or "estimated",
            "over_floor": cost / floor if cost and floor else None,
        },
        "family": request.space.name,
        "evaluations": len(request.history),
        "failures": sum(trial.cost is None for trial in request.history),
    }


def _slot(entry: OpenSlot, view: RoleView) -> dict[str, Any]:
    return {
        "name": entry.slot.name,
        "now": view.base.get(entry.slot.name, entry.slot.default),
        "legal": [str(value) for value in entry.legal],
        "doc": entry.slot.doc if view.docs else "",
    }


def _moves(observation: Observation | None, view: RoleView) -> list[dict[str, str]]:
    if observation is None or not view.moves:
        return []
    return [{"setting": settings(move.values), "result": _result(move)} for move in observation.moves[-view.moves :]]


def _result(move: Move) -> str:
    if move.versus_best is None:
        return f"failed ({move.status})"
    return "the best so far" if move.versus_best <= 1.0 else f"{move.versus_best:.2f} times the best's time"


def settings(values: Values) -> str:
    """Values as `name=value` pairs; a text only as `name=edited`."""
    shown = [f"{name}={'edited' if isinstance(v, str) and len(v) > 40 else v}" for name, v in values.items()]
    return " ".join(shown)


def _counters(observation: Observation | None, view: RoleView) -> list[dict[str, Any]]:
    if observation is None:
        return []
    return counter_lines(observation.counters, observation.labels, most=view.counters, meanings=view.meanings)


def counter_lines(
    counters: Mapping[str, float], labels: Mapping[str, str], *, most: int = COUNTERS, meanings: bool = True
) -> list[dict[str, Any]]:
    """Counters as the prompts' fragment wants them: with unit, label and meaning."""
    found: list[dict[str, Any]] = []
    for name, value in list(counters.items())[:most]:
        unit, meaning = FIGURES.get(name) or _MEANINGS.get(name, ("", ""))
        found.append({"name": name, "value": value, "unit": unit, "label": labels.get(name, "estimated"),
                      "meaning": meaning if meanings else ""})  # fmt: skip
    return found


def _others(observation: Observation | None) -> list[dict[str, str]]:
    return [{"role": role, "line": line} for role, line in observation.others.items()] if observation else []


def _failure(complaint: Complaint | None, view: RoleView) -> dict[str, Any] | None:
    request = view.request
    if request.patient is None:
        return None
    own = {entry.slot.name for entry in view.open} | {slot.name for slot in view.code}
    patient = request.history[request.patient]
    told = settings({n: v for n, v in patient.values.items() if n in own}) or "as the best so far"
    if complaint is None and patient.failure is not None:
        complaint = complaint_of(patient.failure)
    if complaint is None:
        spilt = f"it spills {patient.spills} bytes of registers a thread to memory: it needs fewer registers"
        return {"settings": told, "stage": "compile", "kind": "spill", "errors": [_error(None, None, spilt)]}
    errors: Sequence[dict[str, Any]] = [
        _error(one.slot, one.line, one.message) for one in complaint.diagnostics[: view.errors]
    ] or [_error(complaint.slot, complaint.line, complaint.message)]
    return {
        "settings": told, "stage": complaint.stage, "kind": complaint.kind, "errors": errors,
    }  # fmt: skip


def _error(slot: str | None, line: int | None, message: str) -> dict[str, Any]:
    return {"slot": slot, "line": line, "message": message}


def _without_longest(view: RoleView) -> RoleView:
    longest = max(view.code, key=lambda slot: len(str(view.base.get(slot.name, slot.default))))
    return replace(
        view, code=tuple(slot for slot in view.code if slot is not longest), unseen=(*view.unseen, longest.name)
    )
