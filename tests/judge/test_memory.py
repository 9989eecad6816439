"""What judging holds at most: three times what eager does, and little enough for a card that eager just fits."""

from dataclasses import dataclass

import judge_problems as problems
import pytest
import torch
from support.tracked import Tracked
from torch.nn import functional as F

from warpsmith.kernels.errors import OutOfMemory, UserError
from warpsmith.kernels.records import Buffer, LaunchPlan, LibraryStep
from warpsmith.sandbox import worker
from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.measurement.contenders import stage_for
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.audit import audit
from warpsmith.tools.verification.memory import TIMES_EAGER, MemoryBudget, budgeted
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import compare_output, verify

TEXT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        MEMBERS
    def forward(self, ARGUMENTS):
        return FORWARD
rows, dim = 64, 8192
def get_inputs():
    return [INPUTS]
def get_init_inputs():
    return []
"""
SMALL_CARD = 22.35 / 12
"""What torch may hold of a card of 24 GB, in peaks of eager on 6 GiB of log-softmax."""
MIDDLING = 22.35 / 8
"""The same on 4 GiB of a batch norm, whose rows are not independent."""
_SCALE = 1 << 12
"""So much smaller than those 12 GiB are eager's peaks here, about."""


@dataclass(frozen=True)
class Case:
    """A problem, a kernel that is right, and the limit in peaks of eager."""

    forward: str
    inputs: str
    kernel: object
    arguments: str = "x"
    members: str = "pass"
    limit: float | None = None
    level: str = "quick"


def log_softmax(x, out):
    torch.log_softmax(x, 1, out=out)


def normalised(x, out):
    for channel in range(x.shape[1]):
        var, mean = torch.var_mean(x[:, channel], correction=0)
        torch.sub(x[:, channel], mean, out=out[:, channel]).div_((var + 1e-5).sqrt())


def mean_square(x, y, out):
    total = torch.zeros((), dtype=torch.float64)
    for a, b in zip(x, y, strict=True):
        total += (a.double() - b).square().sum()
    out.copy_(total / x.numel())


def convolved(x, weight, out):
    for n in range(len(x)):
        out[n].copy_(F.conv2d(x[n : n + 1], weight, padding=1)[0])


CASES = {
    "rows on a small card": Case(
        "torch.log_softmax(x, 1)", "torch.rand(rows, dim)", log_softmax, limit=SMALL_CARD, level="full"
    ),
    "rows": Case("torch.log_softmax(x, 1)", "torch.rand(rows, dim)", log_softmax),
    "product": Case(
        "x @ y", "torch.rand(704, 704), torch.rand(704, 704)", lambda x, y, out: torch.mm(x, y, out=out), "x, y"
    ),
    "statistics over the batch": Case(
        "F.batch_norm(x, None, None, training=True)", "torch.rand(8, 16, 64, 64)", normalised, limit=MIDDLING
    ),
    "one number": Case("F.mse_loss(x, y)", "torch.rand(rows, dim), torch.rand(rows, dim)", mean_square, "x, y"),
    "convolution": Case(
        "F.conv2d(x, self.weight, padding=1)", "torch.rand(8, 8, 96, 96)", convolved,
        members="self.weight = nn.Parameter(torch.randn(8, 8, 3, 3))",
    ),
    "weights": Case(
        "F.linear(x, self.weight)", "torch.rand(64, 704)",
        lambda x, weight, out: torch.mm(x, weight.detach().t(), out=out),
        members="self.weight = nn.Parameter(torch.randn(1024, 704))",
    ),
    "positions": Case("x.argmax(1)", "torch.rand(rows, dim)", lambda x, out: torch.argmax(x, 1, out=out)),
    "columns": Case("(x * 2).t()", "torch.rand(704, 704)", lambda x, out: torch.mul(x, 2, out=out.t())),
    "few rows": Case(
        "x.repeat(1, 3)", "torch.rand(8, 65536)", lambda x, out: torch.cat([x] * 3, 1, out=out),
    ),
    "a table that all rows need": Case(
        "x @ y", "torch.rand(64, 8192), torch.rand(8192, 64)", lambda x, y, out: torch.mm(x, y, out=out), "x, y"
    ),
    "more in float64": Case(
        "torch.stack([x, x.sin(), x.cos(), -x]).sum(0) if x.dtype == torch.float64 else x.sin().add_(x.cos())",
        "torch.rand(rows, dim)", lambda x, out: torch.sin(x, out=out).add_(x.cos()),
    ),
    "several inputs": Case(
        "x * y + z", ", ".join(["torch.rand(rows, dim)"] * 3),
        lambda x, y, z, out: torch.mul(x, y, out=out).add_(z), "x, y, z", limit=SMALL_CARD,
    ),
}  # fmt: skip


def scaled(meter):
    """A budget with a floor and temporaries as small beside eager's peak here as they are on a GPU."""
    return MemoryBudget(meter, (2 << 30) // _SCALE, 1 << 20)


def made(tmp_path, case):
    text = TEXT
    for name in ("forward", "inputs", "arguments", "members"):
        text = text.replace(name.upper(), getattr(case, name))
    loaded = problems.problem(tmp_path, text)
    # Traces hold no data, and are made in a process that judges nothing.
    assert loaded.constants == {}
    return loaded


def eager_peak(loaded):
    """Measured with nothing else alive."""
    with Tracked() as counted:
        instance = loaded.build(device="cpu", seed=1)
        counted.restart()
        instance.run()
        return counted.peak()


@pytest.mark.parametrize("name", CASES)
def test_judging_holds_three_times_what_eager_does(tmp_path, name):
    case = CASES[name]
    loaded = made(tmp_path, case)
    peak = eager_peak(loaded)

    def wrong(*args):
        case.kernel(*args)
        args[-1].mul_(1.001 if args[-1].is_floating_point() else 0)

    names = [f"in{n}" for n in range(len(case.arguments.split(", ")))]
    names += ["param:weight"] if "weight" in case.members else []
    limit = None if case.limit is None else int(case.limit * peak)
    with Tracked(limit) as counted, budgeted("cpu", scaled(counted)):
        backend = ScriptedBackend({"right": case.kernel, "wrong": wrong})
        session = Session(loaded, backend, 1 << 40)
        # As on a GPU, whose kernels read any address.
        session.maker.sealed = True
        found = audit(session, loaded.hash)
        verdicts = [
            verify(session, problems.plan(*names, "out0", kernel=kernel), problems.compiled(), level=level)[0]
            for kernel, level in (("right", "quick"), ("wrong", "quick"), ("right", case.level))
        ]
        budget = session.memory
        assert budget.eager_bytes == pytest.approx(peak, rel=0.02)
        assert budget.judge_bytes <= TIMES_EAGER * peak, f"{budget.judge_bytes / peak:.2f} times eager's peak"
    assert [one.ok for one in verdicts] == [True, False, True], [one.failure for one in verdicts]
    assert found.payable, found
    assert counted.failed == 0


@pytest.mark.parametrize("limit", [None, SMALL_CARD])
def test_places_of_timing_keep_to_the_bound(tmp_path, limit):
    case = CASES["rows"]
    loaded = made(tmp_path, case)
    peak = eager_peak(loaded)
    counted = Tracked(None if limit is None else int(limit * peak))
    with counted, budgeted("cpu", scaled(counted)):
        session = Session(loaded, ScriptedBackend({"k": case.kernel}), 1 << 40)
        verify(session, problems.plan("in0", "out0"), problems.compiled(), level="full")
        inputs = session.input_set("shipped")
        stage = stage_for(session, inputs, short=False)
        assert stage.in_place == (limit is not None)
        assert stage_for(session, inputs, short=False) is stage
        for _ in range(3):
            stage.move()
            stage.restore(judged=True)
            stage.clean(forget=True)
            oracle.eager(inputs.instance, stage.arguments[0])
            case.kernel(*stage.arguments[0], stage.outputs[0].tensors[0])
            assert compare_output(inputs, 0, stage.outputs[0].tensors[0]).problem is None
            assert stage.intact(0)
        stage.arguments[0][0][3, 5] += 1
        assert not stage.intact(0)
        assert session.memory.judge_bytes <= TIMES_EAGER * peak, f"{session.memory.judge_bytes / peak:.2f}"
        del inputs, stage
        session.reset()
        # Contents of another set need a stage of their own: outputs are held against that set's references.
        inputs = session.input_set("shipped")
        assert stage_for(session, inputs, short=False).judged is inputs.inputs
    assert counted.failed == 0


def test_what_a_candidate_takes_for_itself_fits_beside_what_is_kept(tmp_path):
    """As a graph does, whose inputs and outputs are copies; what was kept before it came has to go."""
    case = Case(
        "(x - y + (x - z)).sum(1)", ", ".join(["torch.rand(rows, dim)"] * 3),
        lambda x, y, z, out: out.copy_(2 * x.sum(1) - y.sum(1) - z.sum(1)), "x, y, z",
    )  # fmt: skip
    loaded = made(tmp_path, case)
    peak = eager_peak(loaded)
    given = [f"in{n}" for n in range(len(case.arguments.split(", ")))]
    with Tracked() as counted, budgeted("cpu", scaled(counted)):
        session = Session(loaded, ScriptedBackend({"k": lambda *args: case.kernel(*args[:-1])}), 1 << 40)
        session.maker.sealed = True
        most = []
        for scratch in (0, int(1.3 * peak) // 4, 0, int(2.2 * peak) // 4):
            plan = problems.plan(*given, "out0", "own").model_copy(
                update={"buffers": {"own": Buffer(dtype="float32", shape=(max(1, scratch),), init="poison")}}
            )
            found, _ = verify(session, plan, problems.compiled(), level="quick")
            assert found.ok, found.failure
            inputs = session.timed_set("quick")
            stage_for(session, inputs, short=False)
            most.append(session.memory.judge_bytes)
        assert max(most) <= TIMES_EAGER * peak, [round(one / peak, 2) for one in most]
    assert counted.failed == 0


def test_places_of_timing_leave_room_for_the_run_of_a_baseline(tmp_path):
    case = CASES["rows"]
    loaded = made(tmp_path, case)
    with Tracked() as counted, budgeted("cpu", scaled(counted)):
        session = Session(loaded, ScriptedBackend({}), 1 << 40)
        inputs = session.input_set("shipped")
        usual = stage_for(session, inputs, short=False)
        # Several tensors for one of eager, as torch.compile takes for a scan.
        session.runs["compile"] = 15 * 64 * 8192
        assert stage_for(session, inputs, short=False) is usual
        del usual
        stage = stage_for(session, inputs, short=False, beside=["compile"])
        assert stage.in_place
        assert counted.held() + session.runs["compile"] <= session.memory.bound
        assert stage_for(session, inputs, short=False, beside=["compile"]) is stage
        assert stage_for(session, inputs, short=False) is stage


def test_a_run_of_calls_of_libraries_is_measured_once(tmp_path):
    loaded = made(tmp_path, CASES["rows"])
    with Tracked() as counted, budgeted("cpu", scaled(counted)):
        session = Session(loaded, ScriptedBackend({}), 1 << 40)
        session.input_set("shipped")
        plan = LaunchPlan(steps=(LibraryStep(library="log_softmax", args=("in0", {"i32": 1}), out="out0"),))
        session.expect(plan)
        assert session.scratch_bytes == 0
        for size in (1 << 20, 1 << 22):
            with session.running():
                torch.empty(size, dtype=torch.uint8)
        assert session.scratch_bytes == 1 << 20
        session.expect(plan)
        assert session.scratch_bytes == 1 << 20
        session.expect(problems.plan("in0", "out0"))
        assert session.scratch_bytes == 0


def test_inputs_for_which_memory_is_short_are_drawn_again_in_place_of_what_is_kept(tmp_path):
    text = TEXT.replace("MEMBERS", "pass").replace("ARGUMENTS", "x").replace("FORWARD", "x.softmax(1)")
    text = text.replace("INPUTS", "drawn()").replace("64, 8192", "8, 300")
    text += """
armed = []
def drawn():
    if armed:
        armed.pop()
        raise MemoryError("full")
    return torch.rand(rows, dim)
"""
    failing = problems.problem(tmp_path, text)
    session = Session(failing, ScriptedBackend({}), 1 << 30)
    assert session.input_set("normal") is not None
    failing._module.armed.append("once")
    assert session.input_set("large") is not None
    assert list(session._sets) == [("quick", "large")]
    failing._module.armed.extend(["once", "and again"])
    with pytest.raises(OutOfMemory, match="does not fit"):
        session.input_set("tiny")


def test_what_does_not_fit_at_all_is_told_as_such(tmp_path):
    loaded = made(tmp_path, CASES["rows"])
    with Tracked(1 << 20), budgeted("cpu", MemoryBudget(None)):
        session = Session(loaded, ScriptedBackend({}), 1 << 40)
        with pytest.raises(OutOfMemory, match="does not fit the memory of scripted:cpu"):
            session.input_set("normal")
    text = TEXT.replace("MEMBERS", "raise MemoryError('too much')").replace("ARGUMENTS", "x")
    refused = problems.problem(tmp_path, text.replace("FORWARD", "x").replace("INPUTS", "torch.rand(rows, dim)"))
    with pytest.raises(OutOfMemory, match="out of memory: constructing the module raised 'too much'"):
        refused.build(device="cpu", seed=1)
    assert oracle.is_out_of_memory(OutOfMemory("no room"))
    assert not oracle.is_out_of_memory(UserError("no room"))
    assert isinstance(worker._as_exception({"error": "OutOfMemory", "message": "no room"}), OutOfMemory)


def test_an_answer_for_which_memory_is_short_is_not_called_refused(tmp_path):
    text = problems.SOFTMAX.replace("rows, dim = 8, 300", "rows, dim = 64, 4096")
    loaded = problems.problem(tmp_path, text)
    assert loaded.constants == {}
    with Tracked() as counted, budgeted("cpu", MemoryBudget(None)):
        session = Session(loaded, ScriptedBackend({}), 1 << 40)
        session.input_set("normal")
        # Room for one tensor of this size beside the set, and for none with its intermediates in float64.
        counted.limit = counted.held() + (1 << 20) + (1 << 18)
        found = audit(session, loaded.hash)
    assert "the answer for other inputs" in found.untold
    assert not found.payable
    assert any(warning.startswith("for want of memory it was not tried whether") for warning in found.warnings())
