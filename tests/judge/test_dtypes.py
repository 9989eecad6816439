"""Problems in 16-bit floats, integers, booleans and float64: right kernels pass, wrong and coarser ones do not."""

import json

import dtype_kernels as kernels
import judge_problems as problems
import pytest

from warpsmith.app.display import QuietDisplay
from warpsmith.app.judge import JudgeSettings, run_judge
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify

TEXT = """
T = torch.DTYPE
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(32).to(T) + 1)
        self.b = nn.Parameter(torch.randn(32).to(T))
        self.m = nn.Parameter(torch.randn(12, 8))
    def forward(self, ARGUMENTS):
        return FORWARD
def get_inputs():
    return INPUTS
def get_init_inputs():
    return []
"""
TYPES = {"float16": kernels.HALF, "bfloat16": kernels.BFLOAT}
CASES = [
    *((dtype, name, kernels.SIXTEEN[name]) for dtype in TYPES for name in kernels.SIXTEEN),
    *(("float32", name, case) for name, case in kernels.OTHERS.items()),
]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    with Compiler("sm_90", cache_dir=tmp_path_factory.mktemp("cache"), jobs=1) as made:
        yield made


def problem_text(dtype, case):
    forward, inputs, (parameters, _), *_ = case
    names = [part.split("*")[1].strip() for part in parameters.split(",") if "const" in part]
    arguments = ", ".join(name for name in names if name in "xy")
    text = TEXT.replace("DTYPE", dtype).replace("ARGUMENTS", arguments)
    return text.replace("FORWARD", forward).replace("INPUTS", inputs)


def launch_plan(case):
    parameters = case[2][0]
    names = []
    outputs = inputs = 0
    for part in parameters.split(","):
        name = part.split("*")[1].strip()
        if "const" not in part:
            names.append(f"out{outputs}")
            outputs += 1
        elif name in "wbm":
            names.append(f"param:{name}")
        else:
            names.append(f"in{inputs}")
            inputs += 1
    return LaunchPlan(steps=(KernelStep(kernel="k", grid=(2, 1, 1), block=(256, 1, 1), args=tuple(names)),))


def verdicts(folder, compiler, dtype, case):
    """Failures by name; None for a kernel that passes."""
    _, _, (parameters, body), right, wrong = case
    session = Session(problems.problem(folder, problem_text(dtype, case)), EmulatorBackend("sm_90"), 1 << 28)
    found = {}
    for name, parts in {"right": {}, **wrong}.items():
        texts = {old: new for old, new in parts.items() if old not in right}
        source = kernels.source(TYPES.get(dtype, ""), parameters, body, {**texts, **right, **parts})
        report = compiler.compile(Candidate(source=source, plan=launch_plan(case)))
        assert report.ok, report.failure
        verdict, _ = verify(session, launch_plan(case), report, level="full")
        found[name] = verdict.failure
    return found


@pytest.mark.parametrize(("dtype", "name", "case"), CASES, ids=[f"{dtype}-{name}" for dtype, name, _ in CASES])
def test_right_kernels_pass_and_others_do_not(tmp_path, compiler, dtype, name, case):
    found = verdicts(tmp_path, compiler, dtype, case)
    assert found.pop("right") is None
    for wrong, failure in found.items():
        assert failure is not None, wrong
        assert failure.stage == "verify", wrong
        assert failure.kind in ("mismatch", "nonfinite"), wrong


def test_a_16_bit_problem_is_judged_from_the_command_line(tmp_path):
    case = kernels.SIXTEEN["norm with weights"]
    problem = tmp_path / "problem.py"
    problem.write_text(problems.HEAD + problem_text("float16", case))
    _, _, (parameters, body), right, _ = case
    (tmp_path / "launch.json").write_text(json.dumps(launch_plan(case).model_dump(mode="json", exclude_defaults=True)))
    (tmp_path / "kernel.cu").write_text(kernels.source(kernels.HALF, parameters, body, right))
    settings = JudgeSettings(str(problem), tmp_path, "cpu", None, {}, None, "eval")
    assert run_judge(settings, QuietDisplay()) == 0
