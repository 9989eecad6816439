"""Prompts: strict, versioned, within their limit, and never with more than a role may know."""

import json
from itertools import islice
from pathlib import Path

import jinja2
import pytest
from support.roles import EXAMPLES, LONG, asked_of, bench_of, request_of, resources_of

from warpsmith.agents.chat.context import LIMIT, fitted, prompt_of
from warpsmith.agents.chat.policy import Turn
from warpsmith.agents.chat.writer import writer_prompt
from warpsmith.agents.complaint import Complaint
from warpsmith.agents.policy import Request, Trial, Writing
from warpsmith.app.freeform import task_for
from warpsmith.app.workbench import Bench, specs_of
from warpsmith.kernels.records import Candidate, Failure, KernelStep, LaunchPlan
from warpsmith.kernels.slots import ROLES
from warpsmith.prompts.render import figure, render, text, version
from warpsmith.prompts.tokens import estimate, estimate_chat


@pytest.fixture(scope="module")
def softmax() -> Bench:
    return bench_of(EXAMPLES / "softmax.py")


def test_a_name_that_is_missing_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("memory", {"role": "memory"})


def test_every_prompt_has_a_version_of_its_own() -> None:
    versions = {name: version(name) for name in (*ROLES, "single", "writer", "interpreter")}
    assert len(set(versions.values())) == len(versions)
    assert all(found.startswith(f"{name}@") for name, found in versions.items())


def test_figures_are_short() -> None:
    shown = [figure(v) for v in (3.0, 12.3456, 0.000123456, 1234567.0, True, "shuffle")]
    assert shown == ["3", "12.3", "0.000123", "1.23e+06", "True", "shuffle"]


def test_a_prompt_says_what_the_role_owns_and_how_every_figure_was_had(softmax: Bench) -> None:
    request = request_of(next(iter(specs_of(softmax).values())), "refine", "memory", tried=6)
    resources = resources_of(softmax)
    prompt = prompt_of(Turn.of(request).view("memory"), resources)
    assert prompt.system.startswith("You are the memory role.")
    for part in (
        "float32 [256, 4096]",
        "amax, sub, exp, sum, div",
        "FLOOR: ",
        "(estimated)",
        "times the floor",
        "YOUR SLOTS",
        "WHAT YOU TRIED",
        "OTHER ROLES",
        "NVIDIA H200",
        "(emulated)",
    ):
        assert part in prompt.user, part
    assert any(f"- {name}: now " in prompt.user for name in request.space.groups["memory"])
    assert "threads" not in prompt.user.partition("YOUR SLOTS")[2].partition("\n\n")[0].replace("threads a", "")
    counters = prompt.user.partition("COUNTERS OF THE BEST:\n")[2].partition("\n\n")[0].split("\n")
    assert 0 < len(counters) <= 24
    assert all(any(label in line for label in ("measured", "estimated", "emulated", "compiler")) for line in counters)


def test_what_is_too_long_is_left_out_in_whole_pieces(softmax: Bench) -> None:
    request = request_of(next(iter(specs_of(softmax).values())), "repair", "compute")
    resources = resources_of(softmax)
    view = Turn.of(request).view("compute")
    long, (view, short) = prompt_of(view, resources), fitted(view, resources, 400)
    assert estimate_chat((long.system, long.user)) > LIMIT
    assert estimate_chat((short.system, short.user)) + 400 <= LIMIT
    lines = set(long.user.split("\n"))
    cut = [
        line for line in short.user.split("\n") if line not in lines and not line.startswith(("DEVICE", "- code slot"))
    ]
    assert all(any(whole.startswith(line.rstrip(")")) for whole in lines) for line in cut), cut
    assert LONG.strip() in short.user
    for slot in view.code:
        assert str(view.base.get(slot.name, slot.default)) in short.user


def test_every_prompt_of_a_problem_is_within_the_limit() -> None:
    found = list(islice(asked_of(EXAMPLES / "layer_norm.py"), 0, None, 5))
    assert len(found) >= 5
    for asked in found:
        assert estimate_chat(asked.texts) <= LIMIT, asked.name
        _tells_no_secret("\n".join(asked.texts))


def _tells_no_secret(said: str) -> None:
    assert str(Path.cwd()) not in said
    assert str(EXAMPLES.parent) not in said
    assert "/tmp" not in said
    assert "hidden" not in said


def test_a_writer_is_told_its_failure_but_not_on_what_inputs(softmax: Bench) -> None:
    task = task_for(softmax, specs_of(softmax))
    step = KernelStep(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0"))
    base = Candidate(source="// the failed text\n", plan=LaunchPlan(steps=(step,)))
    complaint = Complaint("verify", "mismatch", "out0: 12 of 256 elements are off by more than 0.001", None, None)
    failure = Failure(stage="verify", message="out0 on `huge` inputs", kind="mismatch")
    sick = Trial({}, None, failure=failure, candidate=base.id)
    request = Request(softmax_space(softmax), (sick,), "repair", 1, 0, 2, patient=0, complaint=complaint)
    prompt = writer_prompt(request, Writing(task, base, 5.0, "estimated"))
    assert "// the failed text" in prompt.user
    assert "off by more than 0.001" in prompt.user
    assert "`huge`" not in prompt.user
    assert json.loads(prompt.user.partition("plan: ")[2].partition("\n")[0])["steps"][0]["kernel"] == "k"
    assert estimate_chat((prompt.system, prompt.user)) <= LIMIT
    _tells_no_secret(prompt.user)


def softmax_space(bench: Bench):  # type: ignore[no-untyped-def]
    return request_of(next(iter(specs_of(bench).values())), "joint", tried=1).space


def test_estimates_grow_with_digits_and_long_words() -> None:
    assert estimate("a small kernel") == 3
    assert estimate("4096") == 4
    assert estimate("accumulators") == 3
    assert text("memory.system", {}).count("\n\n\n") == 0
