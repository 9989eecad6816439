"""Writing whole candidates: the writer's prompt, its reply as a proposal, and repairs by the judge's complaint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpsmith.agents.chat.context import LIMIT, MARGIN, SAID
from warpsmith.agents.chat.grammar import Crew
from warpsmith.agents.chat.speak import kept, stream_to, told
from warpsmith.agents.chat.whole import WholeReply, plan_text
from warpsmith.agents.llm.records import Answer, Interrupted, Message, NoReply, Question
from warpsmith.agents.policy import Proposal, Request, Writing
from warpsmith.agents.resources import PolicyResources
from warpsmith.prompts.render import Prompt, render
from warpsmith.prompts.tokens import estimate_chat

WRITER = "writer"
SCHEMA = 260
"""Tokens of the reply's schema where it stands in the prompt."""
EARLIER = 4
"""Earlier candidates that are told of in a line each."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What may be left out, the first first."""

    tried: bool = True
    reference: bool = True
    region: bool = True
    operators: bool = True


def written(request: Request, crew: Crew, resources: PolicyResources) -> list[Proposal]:
    """Whole candidates, one a sample; fewer where the model gives no valid reply. Raises CapReached, ServerUnusable."""
    if request.writing is None:
        raise ValueError("a writer needs to know what to write")
    base = request.writing.base
    prompt = writer_prompt(request, request.writing)
    known = {trial.candidate for trial in request.history}
    found: list[Proposal] = []
    for index in range(request.count):
        answer = _ask(request, prompt, index, crew, resources, base.id if base else None)
        candidate = answer.value.candidate(base.id if base else None) if answer is not None else None
        if answer is not None and candidate is not None and candidate.id not in known:
            known.add(candidate.id)
            found.append(
                Proposal(
                    values={}, base=base.id if base else None, edits={}, candidate=candidate,
                    replies={WRITER: kept(answer)},
                )
            )  # fmt: skip
    return found


def writer_prompt(request: Request, writing: Writing) -> Prompt:
    """The prompt, without what does not fit. The candidate to mend or to improve on always stays."""
    leave = ("tried", "reference", "operators", "region")
    if writing.task.region is None:
        leave = ("tried", "operators", "reference", "region")
    parts = _Parts()
    prompt = render(WRITER, _context(request, writing, parts))
    for name in leave:
        if estimate_chat((prompt.system, prompt.user)) + SCHEMA <= LIMIT - MARGIN:
            break
        kept = _Parts(**{n: getattr(parts, n) and n != name for n in _Parts.__dataclass_fields__})
        if not (kept.reference or kept.region or kept.operators):
            break
        parts = kept
        prompt = render(WRITER, _context(request, writing, parts))
    return prompt


def _context(request: Request, writing: Writing, parts: _Parts) -> dict[str, Any]:
    task, base = writing.task, writing.base
    complaint = request.complaint if request.kind == "repair" else None
    errors: list[dict[str, Any]] = []
    if complaint is not None:
        errors = [{"line": one.line, "message": one.message} for one in complaint.diagnostics]
        errors = errors or [{"line": complaint.line, "message": complaint.message}]
    return {
        "operands": [_operand(one) for one in task.operands],
        "operators": task.operators if parts.operators else (),
        "region": (task.region or "").split("\n") if parts.region and task.region else (),
        "reference": task.reference.strip() if parts.reference else "",
        "device": task.device, "arch": task.arch, "shared_kib": task.shared_bytes // 1024, "floor_us": task.floor_us,
        "best": {"us": writing.best_us, "label": writing.best_is},
        "base": {"source": base.source.strip("\n"), "plan": plan_text(base.plan)} if base else None,
        "failure": {"stage": complaint.stage, "kind": complaint.kind, "errors": errors} if complaint else None,
        "said": request.notes[-SAID:],
        "tried": _tried(request) if parts.tried else [],
    }  # fmt: skip


def _operand(one: Any) -> Mapping[str, Any]:
    """Strides only where they are not those of a dense tensor."""
    dense: list[int] = []
    size = 1
    for extent in reversed(one.shape):
        dense.insert(0, size)
        size *= extent
    strides = tuple(one.strides) if tuple(one.strides) != tuple(dense) else ()
    return {"name": one.name, "dtype": one.dtype, "shape": one.shape, "strides": strides, "scalar": one.scalar}


def _tried(request: Request) -> list[str]:
    """What came of the latest whole candidates."""
    lines = []
    for trial in request.history[-EARLIER:]:
        if trial.failure is not None:
            lines.append(f"failed at {trial.failure.stage} ({trial.failure.kind or trial.failure.stage})")
        elif trial.cost is not None:
            lines.append(f"correct, {trial.cost:.3g} us")
    return lines


def _ask(
    request: Request, prompt: Prompt, index: int, crew: Crew, resources: PolicyResources, parent: str | None
) -> Answer[WholeReply] | None:
    address, sample = crew.pick(WRITER, index)
    who = {"role": WRITER, "model": str(address)}
    resources.emit("ask", {**who, "purpose": request.kind, "prompt": prompt.version})
    question = Question(
        role=WRITER, purpose=request.kind, reply=WholeReply, code=("source",), sample=sample,
        on_text=stream_to(resources, WRITER, address),
        messages=(Message(role="system", content=prompt.system), Message(role="user", content=prompt.user)),
    )  # fmt: skip
    try:
        answer: Answer[WholeReply] = resources.asker(address).ask(question)
    except Interrupted:
        raise
    except NoReply as error:
        resources.emit("reply_failed", {**who, "reason": str(error)})
        return None
    made = answer.value.candidate(parent).id
    resources.emit("reply", {**who, **told(answer), "why": answer.value.why, "candidate": made})
    return answer
