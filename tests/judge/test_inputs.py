"""Shipped inputs that never change are varied all the same, or the verdict says that they are not."""

import judge_problems as problems
import pytest
import torch

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.domains import InputDomain, copy_of, domain_of
from warpsmith.tools.inputs import KINDS, attempts, draw_inputs
from warpsmith.tools.session import Session
from warpsmith.tools.verify import verify

TEXT = """
class Model(nn.Module):
    def forward(self, x, y):
        return FORWARD
n = 2000
def get_inputs():
    return [FIRST, SECOND]
def get_init_inputs():
    return []
"""


def judge(tmp_path, first, second, kernel, forward="x * 2 + y"):
    text = TEXT.replace("FORWARD", forward).replace("FIRST", first).replace("SECOND", second)
    session = Session(problems.problem(tmp_path, text), ScriptedBackend({"k": kernel}), 1 << 28)
    return verify(session, problems.plan("in0", "in1", "out0"), problems.compiled(), level="full")


def right(x, y, out):
    out.copy_(x * 2 + y)


@pytest.mark.parametrize(
    ("first", "second", "kernel"),
    [
        ("torch.ones(n)", "torch.zeros(n)", lambda x, y, out: out.fill_(2)),
        ("torch.ones(n)", "torch.zeros(n)", lambda x, y, out: out.copy_(x * 2)),
        ("torch.randn(n)", "torch.full((n,), -3.0)", lambda x, y, out: out.copy_(x * 2 - 3)),
        ("torch.randn(n)", "torch.full((n,), 0.5)", lambda x, y, out: out.copy_(x * 2 + 0.5)),
        ("torch.randn(n)", "torch.tensor(3.0)", lambda x, y, out: out.copy_(x * 2 + 3)),
        ("torch.randn(n)", "torch.ones(1).expand(n)", lambda x, y, out: out.copy_(x * 2 + 1)),
        (
            "torch.randn(n)",
            "torch.tensor([-1.0, 1.0]).repeat(n // 2)",
            lambda x, y, out: out.copy_(x * 2 + torch.tensor([-1.0, 1.0]).repeat(1000)),
        ),
        (
            "torch.randn(4, 8)",
            "torch.arange(8.0).repeat(4, 1)",
            lambda x, y, out: out.copy_(x * 2 + torch.arange(8.0)),
        ),
    ],
)
def test_a_kernel_that_knows_the_shipped_values_is_wrong(tmp_path, first, second, kernel):
    report, warnings = judge(tmp_path, first, second, right)
    assert report.ok, report.failure
    assert warnings == []
    report, _ = judge(tmp_path, first, second, kernel)
    assert not report.ok
    assert report.failure.kind == "mismatch"


def test_constants_keep_their_sign(tmp_path):
    kernel = lambda x, y, out: out.copy_(x.sqrt() + y)  # noqa: E731
    report, warnings = judge(tmp_path, "torch.ones(n)", "torch.zeros(n)", kernel, "x.sqrt() + y")
    assert report.ok, report.failure
    assert report.checks == 10
    assert warnings == []


def test_what_is_never_varied_is_named(tmp_path):
    def gathered(x, y, out):
        out.copy_(x[y])

    report, warnings = judge(tmp_path, "torch.randn(n)", "torch.arange(n)", gathered, "x[y]")
    assert report.ok, report.failure
    assert warnings == ["input in1 was never varied: its values are integers"]
    # Drawn rows of a permutation are no permutation: the inverse is refused, and the shipped values stay.
    forward = "torch.linalg.inv(y) @ x"
    kernel = lambda x, y, out: out.copy_(torch.linalg.inv(y) @ x)  # noqa: E731
    report, warnings = judge(tmp_path, "torch.randn(20, 3)", "torch.eye(20).roll(1, 0)", kernel, forward)
    assert report.ok, report.failure
    assert "input in1 was never varied: its values look like labels" in warnings


def drawn(value):
    """The value as the kind `normal` draws it, `still` as shipped."""

    class Shipped:
        def fresh_inputs(self, seed):
            return [value]

    domain = domain_of(value, still=True)
    return draw_inputs(KINDS[0], Shipped(), [domain], seed=5)[0]


def test_labels_keep_their_values_and_their_structure():
    targets = drawn(torch.tensor([-1.0, 1.0, 1.0, -1.0] * 50))
    assert targets.unique().tolist() == [-1.0, 1.0]
    hot = drawn(torch.nn.functional.one_hot(torch.arange(60) % 7, 7).float())
    assert bool((hot.sum(1) == 1).all())
    bounds = drawn(torch.arange(50.0))
    assert bool((bounds[1:] >= bounds[:-1]).all())
    assert not torch.equal(bounds, torch.arange(50.0))
    edges = (torch.arange(400).view(20, 20) % 3 == 0).float()
    edges = drawn(((edges + edges.T) > 0).float())
    assert torch.equal(edges, edges.T)


def test_labels_that_vary_by_themselves_are_left_alone():
    value = torch.tensor([0.0, 1.0, 2.0])
    assert domain_of(value, still=False) == InputDomain("fixed")
    assert domain_of(value, still=True).domain == "labels"


def test_refused_values_lead_to_narrower_attempts():
    domains = [domain_of(torch.rand(9), still=False), domain_of(torch.ones(9), still=True)]
    tried = [(one[1].domain, signed) for one, signed in attempts(domains)]
    assert tried == [("real", True), ("real", False), ("fixed", True), ("fixed", False)]


def test_expanded_tensors_keep_their_strides():
    value = torch.full((3, 1), 2.0).expand(3, 5)
    assert drawn(value).stride() == value.stride()
    copied = copy_of(value)
    assert torch.equal(copied, value)
    assert copied.stride() == value.stride()
    assert copied.data_ptr() != value.data_ptr()
