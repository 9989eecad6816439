"""Integer and boolean outputs: rounding that eager shares is excused, wrong results are not."""

import judge_problems as problems
import pytest
import torch

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification.compare_exact import compare_exact, exact_yardstick
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify

TEXT = """
class Model(nn.Module):
    def forward(self, x, y):
        return EXPRESSION
def get_inputs():
    return [torch.randn(40, 1000), torch.randn(40, 1000)]
def get_init_inputs():
    return []
"""
TO_INT = "((x * 0.1 + y) * 10).to(torch.int32)"
BOOL = "x > 0.5 * y"
SUM = "(x.sum(1) * 1e5).long()"


def judge(tmp_path, expression, kernel):
    text = TEXT.replace("EXPRESSION", expression)
    session = Session(problems.problem(tmp_path, text), ScriptedBackend({"k": kernel}), 1 << 28)
    return verify(session, problems.plan("in0", "in1", "out0"), problems.compiled(), level="full")[0]


def to_int(x, y):
    return ((x * 0.1 + y) * 10).to(torch.int32)


RIGHT = {
    "as eager": (TO_INT, lambda x, y, out: out.copy_(to_int(x, y))),
    "as float64": (TO_INT, lambda x, y, out: out.copy_(to_int(x.double(), y.double()))),
    "comparison": (BOOL, lambda x, y, out: out.copy_(x > 0.5 * y)),
    "other order of a sum": (SUM, lambda x, y, out: out.copy_((x.view(40, 8, 125).sum(1).sum(1) * 1e5).long())),
    "argmax of computed values": (
        "(x + y).argmax(1)",
        lambda x, y, out: out.copy_((x + y).argmax(1)),
    ),
}
WRONG = {
    "constant": (TO_INT, lambda x, y, out: out.zero_()),
    "off by one": (TO_INT, lambda x, y, out: out.copy_(to_int(x, y) + 1)),
    "rounded instead of cut": (TO_INT, lambda x, y, out: out.copy_(((x * 0.1 + y) * 10).round())),
    "one element": (TO_INT, lambda x, y, out: (out.copy_(to_int(x, y)), out[3, 7].add_(1000))),
    "half precision": (TO_INT, lambda x, y, out: out.copy_(to_int(x.half(), y.half()))),
    "constant boolean": (BOOL, lambda x, y, out: out.fill_(True)),
    "negated": (BOOL, lambda x, y, out: out.copy_(x <= 0.5 * y)),
    "other factor": (BOOL, lambda x, y, out: out.copy_(x > 0.49 * y)),
    "constant sum": (SUM, lambda x, y, out: out.zero_()),
    "second best": ("(x + y).argmax(1)", lambda x, y, out: out.copy_((x + y).topk(2, 1).indices[:, 1])),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_integers_pass(tmp_path, name):
    report = judge(tmp_path, *RIGHT[name])
    assert report.ok, report.failure
    assert report.checks >= 6


@pytest.mark.parametrize("name", WRONG)
def test_wrong_integers_are_refused(tmp_path, name):
    report = judge(tmp_path, *WRONG[name])
    assert not report.ok
    assert report.failure.kind == "mismatch"


def compared(reference, eager, value):
    return compare_exact(value, reference, exact_yardstick(reference, eager), [])


def test_as_few_as_eager_may_differ_and_no_farther():
    reference = torch.arange(1000)
    eager = reference.clone()
    eager[:10] += 1

    def shifted(count, by):
        value = reference.clone()
        value[500 : 500 + count] += by
        return compared(reference, eager, value).problem

    assert compared(reference, eager, eager).problem is None
    assert shifted(40, -1) is None
    assert "41 of 1000 integers" in shifted(41, -1)
    assert shifted(1, 2) is not None


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.45])
def test_off_by_one_everywhere_is_wrong_whatever_eager_does(share):
    generator = torch.Generator().manual_seed(3)
    reference = torch.randint(-100, 100, (4000,), generator=generator)
    off = torch.rand(4000, generator=generator) < share
    eager = reference + off * (1 - 2 * torch.randint(0, 2, (4000,), generator=generator))
    assert compared(reference, eager, eager).problem is None
    assert compared(reference, eager, reference + 1).problem is not None


def test_steps_finer_than_the_rounding_are_judged_by_distance():
    generator = torch.Generator().manual_seed(5)
    reference = torch.randint(-(10**9), 10**9, (200,), generator=generator)
    eager = reference + torch.randint(-50, 51, (200,), generator=generator)
    assert compared(reference, eager, reference + torch.randint(-120, 121, (200,), generator=generator)).problem is None
    assert compared(reference, eager, reference + 1000).problem is not None
    assert compared(reference, eager, torch.zeros_like(reference)).problem is not None


def test_positions_of_rounded_values_are_no_fine_steps():
    generator = torch.Generator().manual_seed(7)
    scores = 4 + torch.rand(400, 300, generator=generator) / 4
    reference, eager = scores.argmax(1), scores.to(torch.bfloat16).argmax(1)
    assert float((reference != eager).float().mean()) > 0.25
    assert compared(reference, eager, eager).problem is None
    assert compared(reference, eager, reference).problem is None
    assert compared(reference, eager, torch.zeros_like(reference)).problem is not None
    assert compared(reference, eager, scores.topk(2, 1).indices[:, 1]).problem is not None


def positions(value, *inputs):
    reference = inputs[0].argmax(1)
    return compare_exact(value, reference, exact_yardstick(reference, reference), inputs).problem


def test_what_does_not_tell_positions_apart_excuses_none():
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(50, 20, generator=generator)
    zeros, ones, mask = torch.zeros(50, 20), torch.ones(50, 20), (torch.rand(50, 20, generator=generator) > 0.5).float()
    wrong = torch.randint(0, 20, (50,), generator=generator)
    for other in (zeros, ones, mask, x.sign()):
        assert positions(wrong, x, other) is not None
    assert positions(wrong, x, x[:1].expand(50, 20)) is not None


def test_ties_hold_within_range_and_along_the_right_dimension():
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 2.0], [5.0, 5.0, 4.0]])
    assert positions(torch.tensor([2, 2, 1]), x) is None
    assert positions(torch.tensor([2, 1, 1]), x) is not None
    for beyond in (3, -1, -2, 2**40):
        assert positions(torch.tensor([beyond, 0, 0]), x) is not None


def test_few_elements_at_which_eager_rounds_otherwise_excuse_few_others():
    generator = torch.Generator().manual_seed(11)
    scores = torch.randn(3000, 100, generator=generator)
    reference, eager = scores.argmax(1), scores.to(torch.float16).argmax(1)
    ignorant = scores[:, :-1].argmax(1)
    assert compared(reference, eager, ignorant).problem is not None
