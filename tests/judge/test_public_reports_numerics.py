"""Public reports about wrong answers taken for right ones and right ones refused, each by repository and number."""

import json

import judge_problems as problems
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.plan_file import check_plan
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.audit import audit
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify

TEXT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        LAYERS
    def forward(self, ARGUMENTS):
        return FORWARD
def get_inputs():
    return INPUTS
def get_init_inputs():
    return []
"""


def text(forward, inputs="[torch.rand(12, 64)]", arguments="x", layers="pass"):
    filled = TEXT.replace("ARGUMENTS", arguments).replace("FORWARD", forward)
    return filled.replace("INPUTS", inputs).replace("LAYERS", layers)


def session_of(tmp_path, source, kernel=None, **overrides):
    backend = ScriptedBackend({"k": kernel} if kernel else {})
    return Session(problems.problem(tmp_path, source, **overrides), backend, 1 << 28)


def verdict(session, args=("in0", "out0"), level="full"):
    return verify(session, problems.plan(*args), problems.compiled(), level=level)[0]


SMALL_OUTPUTS = {
    "softmax of long rows": "torch.softmax(x, dim=1)",
    "divided by the norm of all": "x / torch.norm(x, p='fro')",
    "rows of norm one": "F.normalize(x, p=2, dim=1)",
    "smallest of a dimension": "x.min(dim=1).values",
    "log of a softmax": "torch.log_softmax(x, 1)",
}


@pytest.mark.parametrize("name", SMALL_OUTPUTS)
def test_kernelbench_165_zeros_where_outputs_are_small(tmp_path, name):
    source = text(SMALL_OUTPUTS[name], "[torch.rand(2, 200000)]")
    report = verdict(session_of(tmp_path, source, lambda x, out: out.zero_()))
    assert report.failure.kind == "mismatch"


def test_kernelbench_165_zeros_against_a_softmax_of_400_thousand_columns(tmp_path):
    session = session_of(tmp_path, problems.SOFTMAX, lambda x, out: out.zero_(), rows="2", dim="400000")
    assert verdict(session).failure.kind == "mismatch"
    right = session_of(tmp_path, problems.SOFTMAX, lambda x, out: out.copy_(x.softmax(1)), rows="2", dim="400000")
    assert verdict(right, level="quick").ok


CONVOLUTION = text("self.conv(x)", "[torch.randn(2, 3, 40)]", layers="self.conv = nn.Conv1d(3, 4, 5)")


def test_kernelbench_88_weights_are_handed_in(tmp_path):
    def given(x, weight, bias, out):
        out.copy_(F.conv1d(x, weight, bias))

    def own(x, weight, bias, out):
        torch.manual_seed(42)
        fresh = torch.nn.Conv1d(3, 4, 5)
        with torch.no_grad():
            out.copy_(fresh(x))

    args = ("in0", "param:conv.weight", "param:conv.bias", "out0")
    assert verdict(session_of(tmp_path, CONVOLUTION, given), args).ok
    assert verdict(session_of(tmp_path, CONVOLUTION, own), args).failure.kind == "mismatch"


@pytest.mark.parametrize("order", [("lazy", "right", "lazy"), ("right", "lazy", "right", "lazy")])
def test_kernelbench_38_25_82_nothing_of_earlier_runs_is_found_in_outputs(tmp_path, order):
    at_work = []

    def kernel(x, out):
        if at_work[-1] == "right":
            out.copy_(torch.softmax(x, 1))

    session = session_of(tmp_path, problems.SOFTMAX, kernel)
    for name in order:
        at_work.append(name)
        assert verdict(session).ok == (name == "right")


EXCLUSIVE = text("torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)[:, :-1]], 1)")
ATTENTION = text(
    "F.scaled_dot_product_attention(q, k, v)",
    "[torch.randn(2, 3, 10, 8, device='cuda', dtype=torch.float16) for _ in range(3)]",
    "q, k, v",
)


def test_kernelbench_109_references_agree_with_an_independent_formula(tmp_path):
    made = session_of(tmp_path, EXCLUSIVE).input_set("normal")
    x = made.inputs[0].double().numpy()
    expected = np.zeros_like(x)
    for column in range(1, x.shape[1]):
        expected[:, column] = expected[:, column - 1] + x[:, column - 1]
    assert np.allclose(made.references[0].numpy(), expected, rtol=0, atol=1e-12)
    report = verdict(session_of(tmp_path, EXCLUSIVE, lambda x, out: out.copy_(x.cumsum(1))))
    assert report.failure.kind == "mismatch"


def test_kernelbench_69_a_problem_that_forces_device_and_dtype_is_judged_all_the_same(tmp_path):
    made = session_of(tmp_path, ATTENTION).input_set("normal")
    q, k, v = (value.double().numpy() for value in made.inputs)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    assert made.inputs[0].dtype is torch.float16
    assert np.allclose(made.references[0].numpy(), expected, rtol=0, atol=1e-12)

    def fused(q, k, v, out):
        out.copy_(F.scaled_dot_product_attention(q.float(), k.float(), v.float()))

    assert verdict(session_of(tmp_path, ATTENTION, fused), ("in0", "in1", "in2", "out0")).ok


BACKWARD = text("torch.autograd.grad((x * x).sum(), x)[0]")
FORMULA = text("2 * x * y", "[torch.randn(12, 64), torch.randn(12, 64)]", "x, y")


def test_kernelbench_142_backward_passes_are_out_of_scope_and_that_is_said(tmp_path):
    loaded = problems.problem(tmp_path, BACKWARD)
    with pytest.raises(UserError, match=r"backward passes are not judged.*formula"):
        check_plan(problems.plan("in0", "out0"), loaded, tmp_path / "launch.json")
    with pytest.raises(UserError, match="backward passes are not judged"):
        session_of(tmp_path, BACKWARD).input_set("normal")
    # The remedy: the gradient as a formula is a problem like others, and agrees with differences in float64.
    made = session_of(tmp_path, FORMULA, lambda x, y, out: out.copy_(2 * x * y))
    x, y = (value[:3, :4].double() for value in made.input_set("normal").inputs)
    numeric = ((x + 1e-6).square() - (x - 1e-6).square()) / 2e-6 * y
    assert torch.allclose(oracle.reference64(made.maker.instances.shipped, [x, y]).outputs[0], numeric, atol=1e-6)
    assert verdict(made, ("in0", "in1", "out0")).ok


def test_cuda_l1_14_a_verdict_tells_more_than_allclose(tmp_path):
    def rounded(a, b, out):
        out.copy_(a.half().float() @ b.half().float())

    args = ("in0", "in1", "out0")
    exact = verdict(session_of(tmp_path, problems.MATMUL, lambda a, b, out: out.copy_(a @ b)), args)
    coarse = verdict(session_of(tmp_path, problems.MATMUL, rounded), args)
    assert exact.ok
    assert exact.error_ratio <= 1.5
    assert exact.max_abs_error > 0
    assert coarse.error_ratio > 100
    assert "times that of eager PyTorch (limit 64)" in coarse.failure.message
    document = json.loads(coarse.model_dump_json())
    assert {"error_ratio", "max_abs_error", "checks"} <= set(document)


def test_accelerator_agents_50_zero_weights_are_moved_before_they_are_judged(tmp_path):
    source = text("self.scale * x", layers="self.scale = nn.Parameter(torch.zeros(64))")
    report = verdict(session_of(tmp_path, source, lambda x, scale, out: out.zero_()), ("in0", "param:scale", "out0"))
    assert report.failure.kind == "mismatch"
    assert "zeros" not in audit(session_of(tmp_path, source), "50").accepted


def test_accelerator_agents_76_an_output_that_is_zero_by_structure_is_told_before_anyone_is_paid(tmp_path):
    source = text("F.gelu((y := self.linear(x).amax(1, keepdim=True)) - y.mean(1, keepdim=True))",
                  layers="self.linear = nn.Linear(64, 8)")  # fmt: skip
    found = audit(session_of(tmp_path, source), "76")
    assert {"zeros", "the answer without weights"} <= set(found.accepted)
    assert not found.payable
