"""Sealed tensors: noise in memory, exact when opened, in whole and in pieces."""

import judge_problems as problems
import pytest
import torch

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification.sealed import Sealed, piece_of
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.uint8,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_was_sealed_opens_exactly(dtype):
    values = (torch.randn(1001) * 3).to(dtype)
    sealed = Sealed(values.view(7, 143))
    assert torch.equal(sealed.opened(), values.view(7, 143))
    for start, stop in ((0, 1), (3, 998), (7, 8), (1000, 1001)):
        assert torch.equal(sealed.piece(start, stop), values[start:stop])


def test_memory_holds_noise():
    values = torch.full((1 << 20,), 1.5, dtype=torch.float64)
    noise = Sealed(values).memory.view(torch.uint8)
    counts = torch.bincount(noise.int(), minlength=256).double()
    assert counts.min() > 0.9 * counts.mean()
    assert counts.max() < 1.1 * counts.mean()


def test_no_two_sealed_copies_are_alike():
    values = torch.zeros(4096, dtype=torch.float64)
    assert not torch.equal(Sealed(values).memory, Sealed(values).memory)


def test_pieces_across_the_bounds_of_the_key_stream():
    values = torch.arange((1 << 22) + 5000, dtype=torch.float64)
    sealed = Sealed(values)
    middle = 1 << 22
    assert torch.equal(sealed.piece(middle - 3, middle + 9), values[middle - 3 : middle + 9])


def test_an_empty_tensor():
    assert Sealed(torch.empty(0, 4)).opened().shape == (0, 4)


def test_strided_tensors_open_row_major():
    values = torch.randn(6, 5).t()
    assert torch.equal(Sealed(values).opened(), values)


def test_verdicts_do_not_depend_on_the_seal(tmp_path):
    text = problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "(torch.softmax(x, dim=1), x.argmax(dim=1))")

    def right(x, out, where):
        out.copy_(torch.softmax(x, 1))
        where.copy_(x.argmax(1))

    def wrong_place(x, out, where):
        right(x, out, where)
        where[5] = (where[5] + 1) % x.shape[1]

    for kernel, fine in ((right, True), (wrong_place, False)):
        session = Session(problems.problem(tmp_path, text), ScriptedBackend({"k": kernel}), 1 << 28)
        session.maker.sealed = True
        plan = problems.plan("in0", "out0", "out1")
        report, _ = verify(session, plan, problems.compiled(), level="full")
        assert report.ok is fine, report.failure
        assert all(isinstance(one, Sealed) for one in session.input_set("normal").references)
        assert not session.spoilt()
        session.input_set("normal").references[0].memory[3] += 1
        assert session.spoilt()


def test_outputs_that_share_memory_are_sealed_each_for_itself(tmp_path):
    text = problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "(lambda y: (y, y.t()))(x * 2)")

    def kernel(x, out, other):
        out.copy_(x * 2)
        other.copy_((x * 2).t())

    session = Session(problems.problem(tmp_path, text), ScriptedBackend({"k": kernel}), 1 << 28)
    session.maker.sealed = True
    report, _ = verify(session, problems.plan("in0", "out0", "out1"), problems.compiled(), level="full")
    assert report.ok, report.failure


@pytest.mark.parametrize("step", [1, 3, 7, 200])
def test_pieces_of_any_tensor_come_in_row_major_order(step):
    for value in (
        torch.rand(7, 5, 3).permute(2, 0, 1), torch.rand(4, 6).t(), torch.rand(5, 1).expand(5, 9), torch.rand(2, 50),
        torch.rand(100, 2).t()[:, ::2], torch.rand(()).expand(3, 4), torch.rand(3, 0, 2).permute(2, 0, 1),
    ):  # fmt: skip
        pieces = [piece_of(value, start, start + step) for start in range(0, value.numel(), step)]
        assert all(piece.numel() <= step for piece in pieces)
        assert torch.equal(torch.cat([*pieces, torch.empty(0)]), value.reshape(-1))
