"""Problems whose checks take trivial answers for right are found, others are left in peace."""

import judge_problems as problems
import pytest
import torch

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification.audit import Audit, _fewer_bits, audit, keep, payable, stored
from warpsmith.tools.verification.session import Session

TEXT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE)
    def forward(self, x):
        return FORWARD
def get_inputs():
    return [INPUT]
def get_init_inputs():
    return []
"""


def audited(tmp_path, text, **overrides):
    loaded = problems.problem(tmp_path, text, **overrides)
    return audit(Session(loaded, ScriptedBackend({}), 1 << 28), loaded.hash)


def forward(tmp_path, expression, made="torch.rand(20, 50)", size="50, 4"):
    text = TEXT.replace("FORWARD", expression).replace("INPUT", made).replace("SIZE", size)
    return audited(tmp_path, text)


DEGENERATE = {
    "a dimension of one less its mean": ("F.gelu((y := x.amax(1, keepdim=True)) - y.mean(1, keepdim=True))", "zeros"),
    "constant": ("torch.ones_like(x) * 0.5", "a constant"),
    "saturated": ("torch.sigmoid(x.abs() + 200)", "a constant"),
    "does not look at its input": ("torch.zeros_like(x).sum(1)", "the answer for other inputs"),
    "gives its input back": ("x.view(50, 20)", "a copy of in0"),
    "weights take no part": ("x.softmax(1) + 0 * self.linear.bias.sum()", "the answer without weights"),
    "rounds to 16 bits itself": ("x.bfloat16().softmax(1).float()", None),
}
HEALTHY = {
    "nothing depends on the last elements": TEXT.replace("FORWARD", "F.avg_pool1d(x, 3) * self.linear.weight.sum()")
    .replace("INPUT", "torch.rand(20, 50)")
    .replace("SIZE", "50, 4"),
    "softmax": problems.SOFTMAX,
    "layer norm": problems.LAYER_NORM,
    "argmax": problems.ARGMAX,
    "matmul": problems.MATMUL,
    "logarithm": problems.LOG,
    "loss": TEXT.replace("FORWARD", "F.mse_loss(self.linear(x), x[:, :4])")
    .replace("INPUT", "torch.rand(20, 50)")
    .replace("SIZE", "50, 4"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_answers_without_work_are_named(tmp_path, name):
    expression, answer = DEGENERATE[name]
    found = forward(tmp_path, expression)
    if answer is None:
        assert "zeros" not in found.accepted
        return
    assert answer in found.accepted
    assert not found.payable
    assert f"this problem cannot tell {answer} from a right answer" in found.warnings()


@pytest.mark.parametrize("name", HEALTHY)
def test_problems_that_tell_are_payable(tmp_path, name):
    found = audited(tmp_path, HEALTHY[name])
    assert found.accepted == ()
    assert len(found.tried) >= 4
    assert found.payable


def test_what_leaves_out_the_last_elements_saves_no_time():
    last = "the answer without the last of in0"
    found = Audit(problem_hash="0" * 64, device="cpu", accepted=(last,), tried=(last, "zeros"))
    assert found.payable
    assert found.warnings() == [f"this problem cannot tell {last} from a right answer"]
    assert not found.model_copy(update={"accepted": (last, "zeros")}).payable


@pytest.mark.parametrize(
    ("results", "inside", "bits"),
    [
        ([torch.float32], [None], 10),
        # Eager rounds to TF32: the answer in TF32 is its own.
        ([torch.float32], [torch.float32], 7),
        ([torch.float32], [torch.bfloat16], 3),
        ([torch.float64, torch.float32], [None, None], 10),
        ([torch.float16], [None], 7),
    ],
)
def test_a_lower_precision_is_lower_than_eager_s_own(results, inside, bits):
    assert _fewer_bits(results, inside) == bits


def test_outputs_far_below_any_fixed_tolerance_are_told_apart(tmp_path):
    found = audited(tmp_path, problems.SOFTMAX, rows="2", dim="400000")
    assert found.accepted == ()
    assert {"zeros", "a constant"} <= set(found.tried)


def test_an_audit_is_kept_by_problem_and_rule(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPSMITH_CACHE", str(tmp_path / "cache"))
    found = audited(tmp_path, problems.SOFTMAX)
    assert stored(found.problem_hash, "cpu") is None
    assert not payable(found.problem_hash, "cpu")
    keep(found)
    assert stored(found.problem_hash, "cpu") == found
    assert payable(found.problem_hash, "cpu")
    assert not payable(found.problem_hash, "cuda")
    keep(found.model_copy(update={"accepted": ("zeros",)}))
    assert not payable(found.problem_hash, "cpu")
