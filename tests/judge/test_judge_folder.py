"""Candidate folders from outside: what is wrong with one is said with file and field."""

import asyncio
import json

import judge_problems as problems
import pytest

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, View
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.judge import judge
from warpsmith.tools.null import NullCompiler
from warpsmith.tools.plan_file import SCRATCH_CPU, check_plan, load_candidate
from warpsmith.tools.target import Target

STEP = {"kernel": "softmax", "grid": [8, 1, 1], "block": [128, 1, 1], "args": ["in0", "out0", {"i32": 300}]}


def scratch(**fields):
    return {"steps": [STEP], "buffers": {"t": {"dtype": "float32", "shape": [4], **fields}}}


def scalar(**argument):
    return {"steps": [{**STEP, "args": ["in0", "out0", argument]}]}


def folder(tmp_path, document, source="// device code"):
    (tmp_path / "kernel.cu").write_text(source)
    text = document if isinstance(document, str) else json.dumps(document)
    (tmp_path / "launch.json").write_text(text)
    return tmp_path


def test_the_documented_example_loads(tmp_path):
    document = {
        "schema_version": 1,
        "buffers": {"tmp0": {"dtype": "float32", "shape": [4096]}},
        "steps": [
            {**STEP, "cluster": [1, 1, 1], "shared_bytes": 0},
            {"library": "mm", "args": ["in0", "param:weight"], "out": "tmp0"},
        ],
    }
    candidate = load_candidate(folder(tmp_path, document))
    assert candidate.plan.steps[0].kernel == "softmax"
    assert candidate.plan.steps[1].library == "mm"
    assert candidate.plan.buffers["tmp0"].init == "poison"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{\n'steps': 1}", r"launch\.json:2: not JSON"),
        ("[]", "an object"),
        ({"steps": []}, "empty"),
        ({"schema_version": 9, "steps": [STEP]}, "schema_version 9"),
        ({"steps": [{**STEP, "grid": [8, 1]}]}, r"steps\[0\]\.grid"),
        ({"steps": [{**STEP, "colour": 1}]}, r"steps\[0\]\.colour"),
        ({"steps": [{"grid": [1, 1, 1]}]}, "either `kernel` or `library`"),
        ({"steps": [{**STEP, "args": ["in0", "tmp"]}]}, r"steps\[0\]\.args\[1\]: 'tmp'"),
        ({"steps": [{**STEP, "args": [{"i31": 3}]}]}, "typed scalar"),
        ({"steps": [STEP], "buffers": {"out0": {"dtype": "float32", "shape": [1]}}}, "reserved"),
        ({"steps": [STEP], "buffers": {"t": {"shape": [1]}}}, r"buffers\.t\.dtype"),
        ({"steps": {"kernel": "k"}}, "must be a list"),
        ({"steps": [STEP], "graph": "yes"}, r"graph: Input should be a valid boolean"),
        (scratch(dtype="float99"), r"launch\.json: buffers\.t\.dtype: 'float99' is not known.*float32"),
        (scratch(dtype="Tensor"), r"buffers\.t\.dtype"),
        (scratch(shape=[4, -1]), r"buffers\.t\.shape\[1\]: a size is at least 1, not -1"),
        (scratch(shape=[0]), r"buffers\.t\.shape\[0\]"),
        (scratch(shape=[10**13]), r"launch\.json: buffers\.t\.shape: .* at most 16 GiB"),
        (scratch(shape=[2**40, 2**40]), "at most 16 GiB"),
        (scalar(i32="abc"), r"steps\[0\]\.args\[2\]: an i32 takes an integer, not 'abc'"),
        (scalar(i64=1.5), "an i64 takes an integer, not 1.5"),
        (scalar(u32=-1), "a u32 takes an integer from 0 to 4294967295"),
        (scalar(i32=2**31), "an i32 takes an integer from"),
        (scalar(f32="abc"), "an f32 takes a number, not 'abc'"),
        (scalar(i32=True), "takes an integer, not True"),
    ],
)
def test_bad_plans_are_named(tmp_path, document, message):
    with pytest.raises(UserError, match=message):
        load_candidate(folder(tmp_path, document))


def test_a_plan_may_ask_for_a_graph_and_is_named_as_ever_without_one(tmp_path):
    plain, graph = (
        load_candidate(folder(tmp_path, {"steps": [STEP], **more})) for more in ({}, {"graph": True})
    )  # fmt: skip
    assert (plain.plan.graph, graph.plan.graph) == (False, True)
    assert plain.id == load_candidate(folder(tmp_path, {"steps": [STEP], "graph": False})).id != graph.id
    # Names that stood in run folders before there were graphs, and before there were views.
    step = KernelStep(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0"))
    plan = LaunchPlan(steps=(step,), buffers={"tmp0": Buffer(dtype="float32", shape=(4,))})
    assert Candidate(source="// s\n", plan=plan).id == "e9791e9427b560ed"
    viewed = plan.model_copy(update={"views": {"v": View(of="in0", shape=(2,), strides=(1,))}})
    assert Candidate(source="// s\n", plan=viewed).id == "a5de7361114ad266"


def test_a_plan_of_thousands_of_steps_loads(tmp_path):
    assert len(load_candidate(folder(tmp_path, {"steps": [STEP] * 8192})).plan.steps) == 8192
    with pytest.raises(UserError, match=r"more than 8,192 steps"):
        load_candidate(folder(tmp_path, {"steps": [STEP] * 8192, "prepare": [{**STEP, "args": ["param:w"]}]}))


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        load_candidate(tmp_path / "none")
    with pytest.raises(UserError, match=r"kernel\.cu: no such file"):
        load_candidate(tmp_path)


def test_a_plan_for_another_problem(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX)

    def check(*args):
        candidate = load_candidate(folder(tmp_path, {"steps": [{**STEP, "args": list(args)}]}))
        check_plan(candidate.plan, loaded, tmp_path / "launch.json")

    check("in0", "out0")
    with pytest.raises(UserError, match="nothing is called 'in1'"):
        check("in0", "in1", "out0")
    with pytest.raises(UserError, match="nothing is called 'param:weight'"):
        check("in0", "param:weight", "out0")
    with pytest.raises(UserError, match="no step is given out0"):
        check("in0")


def test_scratch_beyond_the_target_is_refused(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX)
    plan = load_candidate(folder(tmp_path, scratch(shape=[2**29]))).plan
    check_plan(plan, loaded, tmp_path / "launch.json")
    with pytest.raises(UserError, match=r"buffers\.t\.shape: .* at most 1 GiB"):
        check_plan(plan, loaded, tmp_path / "launch.json", scratch_bytes=SCRATCH_CPU)


def test_a_foreign_folder_gets_a_full_verdict(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX)
    target = Target(kind="cpu", arch="sm_90", backend="sandbox.scripted:sample_backend")

    async def body():
        async with Evaluator(loaded.ref, loaded.hash, target, NullCompiler()) as evaluator:
            for kernel in ("softmax", "wrong"):
                step = {**STEP, "kernel": kernel, "args": ["in0", "out0"]}
                yield await judge(evaluator, loaded, folder(tmp_path, {"steps": [step]}))

    async def collect():
        return [outcome.status async for outcome in body()]

    assert asyncio.run(collect()) == ["ok", "wrong"]
