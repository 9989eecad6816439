"""An existing kernel to start from: a folder, a source with its plan, standard input; and a plan that is missing."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from freeform import kernels

from warpsmith.app.cli import _module_and_start
from warpsmith.app.display import JsonDisplay
from warpsmith.app.optimize import OptimizeSettings, run_optimize
from warpsmith.app.start import as_text, read_start
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.operand import Operand
from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.sketch.plan import sketch_plan
from warpsmith.tools.sketch.signatures import signatures

OPERANDS = (
    Operand("in0", "float32", (6, 96), (96, 1)),
    Operand("in1", "Python float"),
    Operand("out0", "float32", (6, 96), (96, 1)),
    Operand("param:weight", "float32", (96,), (1,)),
)
TWO = """
template <int N> __global__ void unused(float* x) {}
__global__ void part(const float* x, float* partial, int rows) { extern __shared__ float s[]; }
extern "C" __global__ void __launch_bounds__(128)
finish(const float* partial, const float* __restrict__ weight, float* y, long long n, float eps, bool flag) {
    int i = blockIdx.y;
}
"""


def folder(parent: Path) -> Path:
    place = parent / "given"
    place.mkdir()
    (place / "kernel.cu").write_text(kernels.SOFTMAX_TEXT)
    (place / "launch.json").write_text(kernels.softmax().plan.model_dump_json())
    return place


def test_a_given_kernel_is_judged_first_and_everything_descends_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = OptimizeSettings(
        problem=str(kernels.problem(tmp_path)), device="cpu", budget=3, verdicts=1, start=str(folder(tmp_path)),
        out=tmp_path / "runs",
    )  # fmt: skip
    assert run_optimize(settings, JsonDisplay()) == 0
    document = json.loads(capsys.readouterr().out)
    (run,) = (tmp_path / "runs").iterdir()
    with RunStore.open(run, writable=False) as store:
        first = store.outcomes()[0]
        assert (first.candidate, first.family, first.status) == (kernels.softmax().id, "freeform", "screened")
        assert first.estimated_us is not None
        assert Outcome.model_validate(document["start"]) == (store.outcome(first.candidate, "full") or first)
        assert [o.candidate for o in store.outcomes() if o.parent is None] == [first.candidate]


def test_a_missing_plan_is_sketched_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(kernels.SOFTMAX_TEXT)
    start = read_start(str(tmp_path / "k.cu"))
    with pytest.raises(UserError, match="the launch plan is missing") as caught:
        start.candidate(OPERANDS, scratch_bytes=1 << 20)
    text = str(caught.value)
    sketch = json.loads(text[text.index("{\n") : text.rindex("}\n") + 1])
    assert sketch["steps"][0]["args"][:2] == ["in0", "out0"]
    assert "`int n`" in text
    assert "--plan FILE" in text
    assert caught.value.exit_code == 2


def test_one_text_holds_source_and_plan(tmp_path: Path) -> None:
    place = tmp_path / "both.cu"
    place.write_text(as_text(kernels.softmax()))
    start = read_start(str(place))
    assert start.candidate(OPERANDS[:1] + OPERANDS[2:3], scratch_bytes=1 << 20) == kernels.softmax()


def test_a_plan_that_does_not_fit_the_problem_is_told(tmp_path: Path) -> None:
    start = read_start(str(folder(tmp_path)))
    with pytest.raises(UserError, match="nothing is called 'out0'"):
        start.candidate(
            (Operand("in0", "float32", (4,), (1,)), Operand("out1", "float32", (4,), (1,))), scratch_bytes=8
        )


@pytest.mark.parametrize(
    ("problem", "start", "ref", "message"),
    [
        (None, None, None, "name the problem"),
        (None, "k", None, "name the problem"),
        ("-", None, None, "name its module with --ref"),
        ("-", "k", "m.py", "no --start"),
        ("m.py", None, "n.py", "leave one out"),
    ],
)
def test_how_module_and_kernel_may_be_named(
    problem: str | None, start: str | None, ref: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        _module_and_start(problem, start, ref)


def test_what_is_no_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        read_start(str(tmp_path / "none"))
    with pytest.raises(UserError, match="files there: none"):
        read_start(str(tmp_path))


def test_signatures_of_a_source() -> None:
    unused, part, finish = signatures(TWO)
    assert (unused.template, part.template, part.linkage_c, finish.linkage_c) == (True, False, False, True)
    assert (part.dynamic_shared, finish.dimensions, finish.bounds) == (True, 2, 128)
    assert [(p.name, p.ctype, p.pointer, p.const) for p in finish.parameters] == [
        ("partial", "float", True, True),
        ("weight", "float", True, True),
        ("y", "float", True, False),
        ("n", "long long", False, False),
        ("eps", "float", False, False),
        ("flag", "bool", False, False),
    ]
    assert signatures("int main() { return 0; }") == ()


def test_a_sketch_wires_scratch_parameters_and_numbers() -> None:
    plan, questions = sketch_plan(TWO, OPERANDS)
    part, finish = plan.steps
    assert part.args == ("in0", "partial", {"i32": 6})
    assert finish.args[:5] == ("partial", "param:weight", "out0", {"i64": 576}, "in1")
    assert list(plan.buffers) == ["partial"]
    asked = "\n".join(questions)
    for words in (
        'extern "C" before it (line 3)',
        "extern __shared__",
        "two dimensions",
        "`bool flag`",
        "in the order",
    ):
        assert words in asked
    with pytest.raises(UserError, match="defines no kernel"):
        sketch_plan("__device__ int f() { return 1; }", OPERANDS)


@pytest.mark.slow
def test_a_kernel_through_a_pipe(tmp_path: Path) -> None:
    module = kernels.problem(tmp_path)
    command = [sys.executable, "-m", "warpsmith", "optimize", "-", "--ref", str(module), "--device", "cpu"]
    command += ["--budget", "2", "--verdicts", "1", "--out", str(tmp_path / "runs"), "--quiet"]
    done = subprocess.run(command, input=as_text(kernels.softmax()).encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (tmp_path / "best.cu").write_bytes(done.stdout)
    assert read_start(str(tmp_path / "best.cu")).plan is not None
    assert io.BytesIO(done.stdout).readline() == b"/* launch.json\n"
