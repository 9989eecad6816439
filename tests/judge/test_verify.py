"""The verdict: right kernels pass, and each way of being wrong is found and named."""

import judge_problems as problems
import pytest
import torch

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Buffer
from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify


def judge(tmp_path, text, kernel, args=("in0", "out0"), *, level="full", buffers=None):
    session = Session(problems.problem(tmp_path, text), ScriptedBackend({"k": kernel}), 1 << 28)
    return verify(session, problems.plan(*args, buffers=buffers), problems.compiled(), level=level)


def softmax(x, out):
    out.copy_(torch.softmax(x, 1))


def before(out):
    return out.as_strided((1,), (1,), out.storage_offset() - 5)


def test_right_softmax_passes_every_kind(tmp_path):
    report, warnings = judge(tmp_path, problems.SOFTMAX, softmax)
    assert report.ok, report.failure
    assert report.checks == 10
    # The same operator: eager's own error, or less where that lies below one unit in the last place.
    assert 0.1 < report.error_ratio <= 1.0
    assert report.max_abs_error < 1e-6
    assert warnings == []
    quick, _ = judge(tmp_path, problems.SOFTMAX, softmax, level="quick")
    assert quick.ok
    assert quick.checks == 2


def in_tf32(x, y, out):
    rounded = (((one.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for one in (x, y))
    torch.matmul(*rounded, out=out)


@pytest.mark.parametrize("declared", [False, True])
def test_tf32_that_eager_has_at_the_declared_sizes_is_allowed_at_others(tmp_path, declared):
    text = problems.MATMUL
    session = Session(problems.problem(tmp_path, text), ScriptedBackend({"k": in_tf32}), 1 << 28)
    session.maker.tf32_elsewhere = declared
    report, _ = verify(session, problems.plan("in0", "in1", "out0"), problems.compiled(), level="full")
    assert report.ok is declared, report.failure

    def coarser(x, y, out):
        torch.matmul(x.bfloat16().float(), y.bfloat16().float(), out=out)

    session.backend.kernels["k"] = coarser
    report, _ = verify(session, problems.plan("in0", "in1", "out0"), problems.compiled(), level="full")
    assert report.failure.kind == "mismatch"


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (lambda x, out: out.zero_(), "mismatch"),
        (lambda x, out: None, "nonfinite"),
        (lambda x, out: out.fill_(1 / 300), "mismatch"),
        (lambda x, out: out.copy_(torch.softmax(x.bfloat16(), 1)), "mismatch"),
        (lambda x, out: out[:, :-1].copy_(torch.softmax(x, 1)[:, :-1]), "nonfinite"),
        (lambda x, out: (softmax(x, out), x.mul_(2)), "inputs_changed"),
        (lambda x, out: (softmax(x, out), before(out).zero_()), "guard"),
        (lambda x, out: (softmax(x, out), out[3, 7].add_(2e-3)), "mismatch"),
        (lambda x, out: (softmax(x, out), out[3, 7].fill_(float("nan"))), "nonfinite"),
    ],
)
def test_wrong_softmax_is_named(tmp_path, kernel, kind):
    report, _ = judge(tmp_path, problems.SOFTMAX, kernel)
    assert not report.ok
    assert (report.failure.stage, report.failure.kind) == ("verify", kind)


def test_lower_precision_in_a_product_fails_although_inputs_are_positive(tmp_path):
    def tf32(a, b, out):
        cut = [(t.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32) for t in (a, b)]
        out.copy_(cut[0] @ cut[1])

    def serial(a, b, out):
        total = torch.zeros_like(out)
        for k in range(a.shape[1]):
            total += a[:, k : k + 1] * b[k]
        out.copy_(total)

    args = ("in0", "in1", "out0")
    assert judge(tmp_path, problems.MATMUL, serial, args)[0].ok
    report, _ = judge(tmp_path, problems.MATMUL, tf32, args)
    assert not report.ok
    assert report.error_ratio > 64


def test_weights_that_are_left_out_are_missed(tmp_path):
    def without(x, weight, bias, out):
        out.copy_(torch.nn.functional.layer_norm(x, (96,)))

    def whole(x, weight, bias, out):
        out.copy_(torch.nn.functional.layer_norm(x, (96,), weight, bias))

    args = ("in0", "param:norm.weight", "param:norm.bias", "out0")
    assert judge(tmp_path, problems.LAYER_NORM, whole, args)[0].ok
    report, _ = judge(tmp_path, problems.LAYER_NORM, without, args)
    assert report.failure.kind == "mismatch"


def test_what_lies_in_scratch_must_not_show(tmp_path):
    def leaky(x, scratch, out):
        softmax(x, out)
        out.view(torch.int32)[0, 0] += int(scratch.view(torch.int32)[0] & 1)

    buffers = {"tmp": Buffer(dtype="float32", shape=(4,))}
    kinds = set()
    for _ in range(8):
        report, _ = judge(tmp_path, problems.SOFTMAX, leaky, ("in0", "tmp", "out0"), buffers=buffers)
        kinds.add(report.failure.kind if report.failure else None)
    assert kinds <= {"uninitialised", None}
    assert "uninitialised" in kinds


def test_results_that_change_from_run_to_run(tmp_path):
    turn = []

    def fickle(x, out):
        turn.append(1)
        softmax(x, out)
        out.view(torch.int32)[0, 0] += len(turn) % 3

    report, _ = judge(tmp_path, problems.SOFTMAX, fickle)
    assert report.failure.kind == "nondeterministic"


def test_only_ties_excuse_another_index(tmp_path):
    def last_of_ties(x, out):
        flipped = torch.argmax(x.flip(1), 1)
        out.copy_(x.shape[1] - 1 - flipped)

    def second_best(x, out):
        out.copy_(x.topk(2, 1).indices[:, 1])

    assert judge(tmp_path, problems.ARGMAX, last_of_ties)[0].ok
    report, _ = judge(tmp_path, problems.ARGMAX, second_best)
    assert report.failure.kind == "mismatch"


def test_kinds_outside_the_domain_are_narrowed_or_left_out(tmp_path):
    report, warnings = judge(tmp_path, problems.LOG, lambda x, out: out.copy_(x.log()))
    assert report.ok, report.failure
    assert report.checks >= 4
    assert all("left out" in text for text in warnings)


def test_code_that_names_float32_gets_a_float64_reference(tmp_path):
    def kernel(x, out):
        out.copy_((x * 3).sum(1) + 1)

    report, warnings = judge(tmp_path, problems.HARD_FLOAT, kernel)
    assert report.ok, report.failure
    assert any("widened" in text for text in warnings)
    half = judge(tmp_path, problems.HARD_FLOAT, lambda x, out: kernel(x.half().float(), out))[0]
    assert not half.ok


def test_a_crash_is_a_failure_and_spoilt_references_are_renewed(tmp_path):
    def crash(x, out):
        raise RuntimeError("boom")

    report, _ = judge(tmp_path, problems.SOFTMAX, crash)
    assert (report.failure.stage, report.failure.kind) == ("launch", "illegal_address")

    backend = ScriptedBackend({"k": softmax})
    session = Session(problems.problem(tmp_path, problems.SOFTMAX), backend, 1 << 28)
    run = lambda: verify(session, problems.plan("in0", "out0"), problems.compiled(), level="full")[0]  # noqa: E731
    assert run().ok
    session.input_set("normal").references[0].zero_()
    assert run().ok


def test_a_candidate_is_not_blamed_for_inputs_that_another_spoilt(tmp_path):
    backend = ScriptedBackend({"k": softmax})
    session = Session(problems.problem(tmp_path, problems.SOFTMAX), backend, 1 << 28)
    run = lambda: verify(session, problems.plan("in0", "out0"), problems.compiled(), level="full")[0]  # noqa: E731
    assert run().ok
    session.input_set("large").inputs[0][2, 3] += 1
    assert run().ok, "blamed for what was there before"


def test_sums_in_serial_order_pass_on_every_kind(tmp_path):
    """A softmax of 4096 terms added one after another is up to 140 times as far off as eager's at its worst element."""
    text = problems.SOFTMAX.replace("8, 300", "256, 4096")
    assert "256, 4096" in text

    def serial(x, out):
        powers = (x - x.max(1, keepdim=True).values).exp().numpy()
        sums = powers.cumsum(1, dtype="float32")[:, -1:]
        out.copy_(torch.from_numpy(powers / sums))

    report, _ = judge(tmp_path, text, serial)
    assert report.ok, report.failure


def test_a_mismatch_names_strides_that_are_not_row_major(tmp_path):
    text = problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "x.t() * 2")

    def contiguous(x, out):
        out.as_strided((300, 8), (8, 1), out.storage_offset()).copy_(x.t() * 2)

    assert judge(tmp_path, text, lambda x, out: out.copy_(x.t() * 2))[0].ok
    report, _ = judge(tmp_path, text, contiguous)
    assert report.failure.kind == "mismatch"
    assert "out0 has the strides (1, 300) of eager's output" in report.failure.message
    report, _ = judge(tmp_path, problems.SOFTMAX, lambda x, out: out.zero_())
    assert "strides" not in report.failure.message


def test_too_large_for_the_emulator_names_the_remedy(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX, rows="1000000")
    session = Session(loaded, ScriptedBackend({"k": softmax}), 1 << 28)
    with pytest.raises(UserError, match="--set"):
        verify(session, problems.plan("in0", "out0"), problems.compiled(), level="quick")


class Short(Session):
    """Has no memory for outputs when it is first asked."""

    asked = 0

    def outputs(self, layouts):
        Short.asked += 1
        if Short.asked == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().outputs(layouts)


def test_where_memory_falls_short_everything_is_given_up_and_tried_once_more(tmp_path):
    Short.asked = 0
    session = Short(problems.problem(tmp_path, problems.SOFTMAX), ScriptedBackend({"k": softmax}), 1 << 28)
    report, _ = verify(session, problems.plan("in0", "out0"), problems.compiled(), level="quick")
    assert report.ok, report.failure
    assert report.checks == 2
    # The first kind of inputs is judged anew after the failure.
    assert Short.asked == 3
