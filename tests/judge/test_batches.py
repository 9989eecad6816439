"""References batch by batch: only where rows are independent, equal to the whole, within the memory given."""

import judge_problems as problems
import pytest
import torch
from support.tracked import Tracked

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.batches import Rowwise, find_split
from warpsmith.tools.verification.checksums import digest
from warpsmith.tools.verification.compare import aligned_chunks
from warpsmith.tools.verification.memory import MemoryBudget
from warpsmith.tools.verification.session import Session
from warpsmith.tools.verification.verify import verify

TEXT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 256)
        self.second = nn.Linear(256, 16)
    def forward(self, ARGUMENTS):
        return FORWARD
rows = 512
def get_inputs():
    return INPUTS
def get_init_inputs():
    return []
"""
MLP = "self.second(torch.relu(self.first(x)))"


def instance_of(tmp_path, forward, inputs="[torch.randn(rows, 64)]", arguments="x"):
    text = TEXT.replace("FORWARD", forward).replace("INPUTS", inputs).replace("ARGUMENTS", arguments)
    return problems.problem(tmp_path, text).instantiate(seed=3)


def split_of(instance):
    module = instance.module.double()

    def run(wide):
        return oracle.eager(instance, wide)

    produced = [
        value.float() if value.is_floating_point() else value
        for value in oracle.eager(instance, [value.double() for value in instance.inputs])
    ]
    assert module is instance.module
    return find_split(run, instance.inputs, produced)


INDEPENDENT = {
    "layers": (MLP, "[torch.randn(rows, 64)]", "x", (0,)),
    "rows of two inputs": ("(x * y).softmax(1)", "[torch.randn(rows, 64), torch.randn(rows, 64)]", "x, y", (0, 1)),
    "a table beside": ("x @ y", "[torch.randn(64, 64), torch.randn(64, 64)]", "x, y", (0,)),
    "integers": ("x.argmax(1)", "[torch.randn(rows, 64)]", "x", (0,)),
}
DEPENDENT = {
    "means over rows": "x - x.mean(0)",
    "running sums": "x.cumsum(0)",
    "backwards": "x.flip(0)",
    "positions": "x * torch.arange(x.shape[0]).view(-1, 1)",
    "one number": "x.sum()",
    "transposed": "x.t()",
    "neighbours": "x + x.roll(1, 0)",
    "batch statistics": "(x - x.mean(0)) / x.std(0)",
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_found(tmp_path, name):
    forward, inputs, arguments, positions = INDEPENDENT[name]
    split = split_of(instance_of(tmp_path, forward, inputs, arguments))
    assert split is not None
    assert split.positions == positions


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_rows_are_not_split(tmp_path, name):
    assert split_of(instance_of(tmp_path, DEPENDENT[name])) is None


def opened(reference):
    return [one.opened() if isinstance(one, Rowwise) else one for one in reference.outputs]


def test_batches_equal_the_whole_within_the_memory_given(tmp_path):
    instance = instance_of(tmp_path, MLP)
    whole = oracle.reference64(instance, instance.inputs)
    limit, peaks = 1 << 20, {}
    for name, most in (("whole", None), ("batches", limit)):
        produced = oracle.EagerOutputs(instance, instance.inputs)
        with Tracked(most) as counted:
            memory = MemoryBudget(counted, 1 << 30, 1 << 18, eager_bytes=limit // 2, _capacity=limit)
            found = oracle.reference64(instance, instance.inputs, produced=produced, memory=memory)
            compared = [chunk.numel() for _, chunk in aligned_chunks(found.outputs[0], produced.get()[0])]
        peaks[name] = counted.peak()
        assert sum(compared) == whole.outputs[0].numel()
        assert torch.allclose(opened(found)[0], whole.outputs[0], rtol=1e-12, atol=1e-12)
        assert (oracle.BY_ROWS in found.notes) == (name == "batches")
    assert peaks["whole"] > 2 * limit
    assert peaks["batches"] < limit


def test_rows_follow_the_weights_and_hold_nothing(tmp_path):
    instance = instance_of(tmp_path, MLP)
    produced = oracle.EagerOutputs(instance, instance.inputs)
    with Tracked(1 << 20) as counted:
        memory = MemoryBudget(counted, 0, 1 << 18, eager_bytes=1 << 19, _capacity=1 << 20)
        (found,) = oracle.reference64(instance, instance.inputs, produced=produced, memory=memory).outputs
        assert isinstance(found, Rowwise)
        assert (found.shape, found.numel(), found.dtype) == ((512, 16), 512 * 16, torch.float64)
        weights = sum(one.nbytes for one in instance.module.parameters())
        assert counted.held() <= weights + instance.inputs[0].nbytes + produced.bytes
        first = found.opened()
        instance.module.second.bias.data += 1
        assert torch.allclose(found.opened(), first + 1)
        assert sum(piece.numel() for piece in found.pieces(100)) == found.numel()


def test_batches_that_have_fitted_are_not_held_to_a_limit_again(tmp_path):
    instance = instance_of(tmp_path, MLP)
    produced = oracle.EagerOutputs(instance, instance.inputs)
    with Tracked(1 << 20) as counted:
        memory = MemoryBudget(counted, 1 << 30, 1 << 18, eager_bytes=1 << 19, _capacity=1 << 20)
        (found,) = oracle.reference64(instance, instance.inputs, produced=produced, memory=memory).outputs
        assert isinstance(found, Rowwise)
        before = counted.held_to
        assert len(list(found.pieces(1 << 30))) > 2
        assert counted.held_to - before <= 2, "the first batch, or one of half its size"
        before = counted.held_to
        found.opened()
        assert counted.held_to == before


def test_what_cannot_be_split_is_computed_as_a_whole(tmp_path):
    instance = instance_of(tmp_path, "x - x.mean(0)")
    produced = oracle.EagerOutputs(instance, instance.inputs)
    with Tracked() as counted:
        memory = MemoryBudget(counted, 0, 1 << 10, eager_bytes=1 << 10, _capacity=1 << 30)
        found = oracle.reference64(instance, instance.inputs, produced=produced, memory=memory)
    assert found.notes == ()


def softmax(x, out):
    out.copy_(torch.softmax(x, 1))


def test_one_output_buffer_is_enough(tmp_path):
    turn = []

    def fickle(x, out):
        turn.append(1)
        softmax(x, out)
        out.view(torch.int32)[0, 0] += len(turn) % 3

    def judged(kernel):
        session = Session(problems.problem(tmp_path, problems.SOFTMAX), ScriptedBackend({"k": kernel}), 1 << 28)
        layouts = session.input_set("normal").layouts
        session._outputs = session.outputs(layouts)[0], None
        return verify(session, problems.plan("in0", "out0"), problems.compiled(), level="full")[0]

    assert judged(softmax).ok
    assert judged(fickle).failure.kind == "nondeterministic"
    assert judged(lambda x, out: out[:, 1:].copy_(torch.softmax(x, 1)[:, 1:])).failure is not None


def test_digests_tell_any_change_and_any_exchange():
    raw = torch.randint(0, 256, (100_003,), dtype=torch.uint8)
    other = raw.clone()
    assert digest(raw, 5) == digest(other, 5)
    assert digest(raw, 5) != digest(raw, 6)
    other[77] ^= 1
    assert digest(raw, 5) != digest(other, 5)
    swapped = raw.clone()
    swapped[:8], swapped[8:16] = raw[8:16].clone(), raw[:8].clone()
    assert digest(raw, 5) != digest(swapped, 5)
