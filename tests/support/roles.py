"""Prompts of roles as whole searches make them: long histories, all counters, compile errors, for any problem."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from warpsmith.agents.chat.context import RoleView, fitted, form_tokens
from warpsmith.agents.chat.planner import planner_prompt
from warpsmith.agents.chat.policy import Turn
from warpsmith.agents.chat.replies import reply_model
from warpsmith.agents.chat.speak import model_of
from warpsmith.agents.complaint import Complaint
from warpsmith.agents.llm.forms import instruction, wire_schema
from warpsmith.agents.llm.records import Asker
from warpsmith.agents.observation import Seen, observe
from warpsmith.agents.plans import PlanOption, PlanQuestion
from warpsmith.agents.policy import Kind, Request, Trial, trial_of
from warpsmith.agents.pool import candidates
from warpsmith.agents.resources import PolicyResources, problem_text
from warpsmith.agents.space import Grid, SpecSpace
from warpsmith.app.workbench import Bench, open_bench, specs_of
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Counters, Diagnostic, Failure, Outcome
from warpsmith.kernels.slots import ROLES, Values
from warpsmith.prompts.render import Prompt
from warpsmith.tools.profiling.counters import METRICS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KINDS: tuple[Kind, ...] = ("start", "joint", "refine", "escape", "repair")


@dataclass(frozen=True)
class Asked:
    """A prompt and what it is of."""

    name: str
    prompt: Prompt
    form: str
    """The longest words that ask for the form of the reply."""

    @property
    def texts(self) -> tuple[str, str]:
        """Both messages as they are sent."""
        return self.prompt.system, f"{self.prompt.user}\n\n{self.form}"


def bench_of(path: Path | str) -> Bench:
    """The problem on the emulator's machine."""
    return open_bench(str(path), device="cpu", arch=None, overrides={}, inputs=None, mode="eval")


def resources_of(
    bench: Bench,
    asker: Callable[[Any], Asker] | None = None,
    emit: Callable[[str, Mapping[str, Any]], None] = lambda kind, data: None,
) -> PolicyResources:
    """As `optimize` makes them."""

    def nobody(address: Any) -> Asker:
        raise AssertionError(f"{address} was asked")

    text = problem_text(bench.plan(), bench.graph, bench.floor_us or 0.0)
    return PolicyResources(asker or nobody, emit, bench.machine.model, text)


def request_of(spec: KernelSpec, kind: Kind, role: str | None = None, tried: int = 40) -> Request:
    """A request late in a search: `tried` trials, the last of them failed, with all that observations can hold."""
    space = SpecSpace(spec)
    blank = Request(space, (), "start", 4, 0, 0)
    points = [p for p in candidates(blank, np.random.default_rng(0)) if Grid(space).valid(p)][:tried]
    seen = [_seen(space, Grid(space).values(point), i) for i, point in enumerate(points)]
    history = tuple(
        trial_of(one.outcome, one.values, "refine", role=one.role, base=None, step=i) for i, one in enumerate(seen)
    )
    broken = Failure(stage="compile", message="line 3: " + LONG, kind="error", slot=None)
    patient = Trial(space.sensible(), None, failure=broken, candidate="broken", step=len(history))
    observations = {one: observe(space, seen, one) for one in space.groups}
    return Request(
        space, (*history, patient), kind, 4, 0, len(history) + 1, role=role,
        patient=len(history) if kind == "repair" else None, observations=observations,
        complaint=_complaint(spec) if kind == "repair" else None, notes=(WISH,) * 5,
    )  # fmt: skip


LONG = "no operator matches these operands: operand types are: const Pack<float, 4> * const Pack<float, 4>; " * 3
WISH = "keep the accumulation in fp32, and no more than 48 KB of shared memory a block, please"


def asked_of(path: Path | str) -> Iterator[Asked]:
    """Every prompt of every role of a problem: all families, all kinds of round."""
    bench = bench_of(path)
    resources = resources_of(bench)
    specs = specs_of(bench)
    for (family, spec), kind in itertools.product(specs.items(), KINDS):
        request = request_of(spec, kind)
        turn = Turn.of(request)
        for role in (r for r in ROLES if r in request.space.groups):
            for note in ("", "With the other slots as they are this was tried already. Choose otherwise."):
                view = turn.view(role, note)
                if view.open or view.code:
                    yield _asked(f"{Path(path).stem} {family} {kind} {role}", view, resources)
    names = (*specs, "freeform")
    options = tuple(PlanOption(name, "what it does, in a line of twelve words or so, as families do", 40, 12.3456)
                    for name in names)  # fmt: skip
    counters = {metric.name: 1234567.891 for metric in METRICS if "planner" in metric.roles}
    question = PlanQuestion(options, names[0], "estimated", 12, 30, counters, {}, (WISH,) * 5)
    form = instruction("object", wire_schema(reply_model("planner", (("plan", names),), ())), ())
    yield Asked(f"{Path(path).stem} planner", planner_prompt(question, resources), form)


def _asked(name: str, view: RoleView, resources: PolicyResources) -> Asked:
    code = tuple(slot.name for slot in view.code)
    view, prompt = fitted(view, resources, form_tokens(model_of(view), code))
    reply, code = model_of(view), tuple(slot.name for slot in view.code)
    forms = [instruction("object", wire_schema(reply), ()), instruction("text", wire_schema(reply, code), code)]
    return Asked(name, prompt, max(forms, key=len))


def _seen(space: SpecSpace, values: Values, index: int) -> Seen:
    counters = Counters(source="emulated", kernels={"kernel": {metric.name: 12345.678 for metric in METRICS}})
    outcome = Outcome(
        candidate=f"c{index}", problem_hash="0" * 64, status="screened", family=space.name, slots=values,
        verified_on="emulator:sm_90", estimated_us=space.estimate(values) or 99.0, registers=255, spills=128,
        shared_bytes=232448, error_ratio=1.2345, max_abs_error=1.2345e-7, roofline_fraction=0.1234,
        launch_overhead_us=2.345, counters=counters,
    )  # fmt: skip
    return Seen(values, outcome, ROLES[index % len(ROLES)] if index % 2 else None)


def _complaint(spec: KernelSpec) -> Complaint:
    code = [slot.name for slot in spec.slots if slot.kind == "code"] or [None]
    errors = tuple(Diagnostic(severity="error", line=3, message=LONG, slot=code[i % len(code)]) for i in range(5))
    return Complaint("compile", "error", f"line 3: {LONG}", code[0], 3, errors)


def changed(request: Request, **more: Any) -> Request:
    """The request with other fields."""
    return replace(request, **more)
