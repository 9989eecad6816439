"""Shipped inputs that never change are varied all the same, or the verdict says that they are not."""

import judge_problems as problems
import pytest
import torch

from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification.compare import compare
from warpsmith.tools.verification.domains import InputDomain, domain_of, redrawn_integers
from warpsmith.tools.verification.inputs import KINDS, attempts, draw_inputs
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify

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


def set_up(tmp_path, forward, first="torch.randn(n)", second="torch.randn(n)", mode="eval"):
    text = TEXT.replace("FORWARD", forward).replace("FIRST", first).replace("SECOND", second)
    return Session(problems.problem(tmp_path, text), ScriptedBackend({}), 1 << 28)


def test_forward_that_draws_random_numbers_or_writes_its_input_is_refused_in_words(tmp_path):
    with pytest.raises(UserError, match="draws random numbers"):
        set_up(tmp_path, "F.dropout(x, 0.5, True) + y").input_set("normal")
    with pytest.raises(UserError, match="changes in0 in place"):
        set_up(tmp_path, "x.mul_(2) + y").input_set("normal")
    assert set_up(tmp_path, "F.dropout(x, 0.5, False) + y").input_set("normal") is not None


@pytest.mark.parametrize(
    ("first", "forward"),
    [
        ("torch.randn(n)", "x.exp() * (1 + random.random()) + y"),
        ("torch.randn(n)", "x * float(np.random.rand()) + y"),
        ("torch.randn(n)", "x * (1 + 2e-5 * count()) + y"),
        ("torch.randn(n).half()", "x * (1 + 0.03 * (count() % 2))"),
        ("torch.randn(n)", "(x > 0.1 * count()).sum(0, keepdim=True)"),
    ],
)
def test_forward_that_is_no_function_of_its_inputs_is_refused_in_words(tmp_path, first, forward):
    counting = (
        "import random\nimport numpy as np\ncalls = []\ndef count():\n    calls.append(1)\n    return len(calls)\n"
    )
    text = TEXT.replace("FORWARD", forward).replace("FIRST", first).replace("SECOND", "torch.randn(n)")
    session = Session(problems.problem(tmp_path, counting + text), ScriptedBackend({}), 1 << 28)
    with pytest.raises(UserError, match="out0 changes from run to run"):
        session.input_set("normal")


def test_full_verdicts_never_see_the_same_numbers_twice(tmp_path):
    session = set_up(tmp_path, "x * 2 + y")
    seen = [session.input_set(name, level).inputs[0].clone() for level in ("quick", "full") for name in ("normal",)]
    for _ in range(3):
        session.input_set("normal", "full")
        session.renew()
        seen.append(session.input_set("normal", "full").inputs[0].clone())
    assert len({tuple(value[:8].tolist()) for value in seen}) == len(seen)


@pytest.mark.parametrize(
    "value",
    [
        torch.randint(0, 7, (60,)),
        torch.tensor([0, 3, 3, 10, 20]),
        torch.tensor([2, 5, 9, 14, 30]),
        torch.randperm(40),
        torch.stack([torch.randperm(9) for _ in range(4)]),
        torch.randint(0, 2, (50,)).bool(),
        torch.randint(0, 255, (6, 5), dtype=torch.uint8),
    ],
)
def test_integers_are_redrawn_within_what_they_were(value):
    domain = domain_of(value, still=True)
    assert domain.domain == "integers"
    again = [redrawn_integers(value, torch.Generator().manual_seed(seed), False) for seed in range(6)]
    assert any(not torch.equal(one, value) for one in again)
    for one in again:
        assert (one.dtype, one.shape) == (value.dtype, value.shape)
        assert one.min() >= value.min()
        assert one.max() <= value.max()
        rows, steps = one.reshape(-1, one.shape[-1]).long(), value.reshape(-1, value.shape[-1]).long().diff(dim=1)
        if bool((steps >= 0).all()):
            assert bool((rows.diff(dim=1) >= bool((steps > 0).all())).all())
            assert (one[0], one[-1]) == (value[0], value[-1])
        if len(value.unique()) == value.shape[-1]:
            assert all(len(row.unique()) == len(row) for row in rows)


def test_positions_in_order_have_no_other_draw():
    assert domain_of(torch.arange(20), still=True).domain == "fixed"
    assert domain_of(torch.arange(20).flip(0).repeat(3, 1), still=True).domain == "fixed"
    assert domain_of(torch.full((9,), 4), still=True).domain == "fixed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.draw is not None], ids=lambda kind: kind.name)
def test_every_kind_can_be_drawn_in_every_shape_and_dtype(kind, dtype):
    for shape in ((), (1,), (3, 1), (5, 70), (2, 3, 33)):
        drawn = kind.draw(torch.empty(shape, dtype=dtype), torch.Generator().manual_seed(1))
        assert (drawn.shape, drawn.dtype) == (torch.Size(shape), dtype)
        assert kind.name == "nonfinite" or bool(drawn.isfinite().all())


ROWS, COLUMNS = (40, 50), (50, 40)
MAXIMUM = "x.view(40, 50).amax(1)"
WRONG_AT_EDGES = {
    "maximum that starts at zero": (MAXIMUM, lambda x, y, out: out.copy_(x.view(ROWS).amax(1).relu())),
    "last element left out": (MAXIMUM, lambda x, y, out: out.copy_(x.view(ROWS)[:, :49].amax(1))),
    "first term left out": (
        "x.view(40, 50) @ y.view(50, 40)",
        lambda x, y, out: out.copy_(x.view(ROWS)[:, 1:] @ y.view(COLUMNS)[1:]),
    ),
}


@pytest.mark.parametrize("name", WRONG_AT_EDGES)
def test_kinds_of_their_own_find_what_is_missing(tmp_path, name):
    forward, kernel = WRONG_AT_EDGES[name]
    report, _ = judge(tmp_path, "torch.randn(n)", "torch.randn(n)", kernel, forward)
    assert report.failure.kind == "mismatch"


def test_whole_numbers_must_come_out_whole(tmp_path):
    forward = "x.view(40, 50) @ y.view(50, 40)"
    kernel = lambda x, y, out: out.copy_(x.view(40, 50) @ y.view(50, 40))  # noqa: E731
    session = set_up(tmp_path, forward)
    made = session.input_set("whole")
    assert made.yardsticks[0].exact
    assert bool((made.references[0] == made.references[0].round()).all())
    value = made.references[0].float()
    assert compare(value, made.references[0], made.yardsticks[0], by_ratio=False, whole=True).problem is None
    value[3, 3] += 1e-3
    assert "whole numbers" in compare(value, made.references[0], made.yardsticks[0], by_ratio=False, whole=True).problem
    report, _ = judge(tmp_path, "torch.randn(n)", "torch.randn(n)", kernel, forward)
    assert report.ok


def test_not_a_number_is_told_and_not_judged(tmp_path):
    kernel = lambda x, y, out: out.copy_((x * 2 + y).nan_to_num(0, 0, 0))  # noqa: E731
    report, warnings = judge(tmp_path, "torch.randn(n)", "torch.randn(n)", kernel)
    assert report.ok
    assert any("not judged" in text for text in warnings)
