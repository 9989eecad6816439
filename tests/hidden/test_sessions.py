"""Worker sessions at hidden shapes stand beside the main one and take no other's place."""

import asyncio

import hidden_problems as problems

from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.tools.null import NullCompiler
from warpsmith.tools.target import Target
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes
from warpsmith.tools.verification.session import session_for

TARGET = Target(kind="cpu", arch="sm_90", backend="sandbox.scripted:sample_backend").model_dump(mode="json")


def session(path, rows, *, beside):
    ref = load_problem(str(path), overrides={"rows": str(rows)}).ref
    return session_for({"problem": ref.model_dump(mode="json"), "target": TARGET, "beside": beside})


def test_small_sessions_are_few_and_leave_the_main_one_alone(tmp_path):
    path = problems.write(tmp_path, problems.TEXTS["softmax"])
    main = session(path, 100, beside=False)
    small = [session(path, rows, beside=True) for rows in range(2, 14)]
    assert session(path, 100, beside=False) is main
    assert session(path, 13, beside=True) is small[-1]
    assert session(path, 2, beside=True) is not small[0]
    other = session(path, 101, beside=False)
    assert other is not main
    assert session(path, 13, beside=True) is not small[-1]


def test_judging_what_no_template_made_needs_no_graph(tmp_path):
    step = KernelStep(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), args=())
    foreign = Candidate(source="", plan=LaunchPlan(steps=(step,)), family="row")
    hidden = HiddenShapes(problems.problem(tmp_path, "softmax"), None, {}, BUDGETS["cpu"])
    found = asyncio.run(hidden.trials(foreign, NullCompiler()))
    assert found.trials == ()
    assert "template" in found.notes[0]
