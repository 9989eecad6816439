"""References batch by batch: only where rows are independent, equal to the whole, within the memory given."""

import weakref
from collections import Counter

import judge_problems as problems
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.batches import find_split
from warpsmith.tools.verification.checksums import digest
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


class Allocated(TorchDispatchMode):
    """Counts the bytes of tensors that operators made and that are still alive."""

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self.users = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.note(leaf)
        return result

    def note(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        self.users[key] += 1
        if self.users[key] == 1:
            self.live += size
            self.peak = max(self.peak, self.live)
        weakref.finalize(tensor, self.forget, key, size)

    def forget(self, key, size):
        self.users[key] -= 1
        if self.users[key] == 0:
            self.live -= size


def test_batches_equal_the_whole_within_the_memory_given(tmp_path):
    instance = instance_of(tmp_path, MLP)
    produced = oracle.eager(instance, instance.inputs)
    whole = oracle.reference64(instance, instance.inputs)
    budget, peaks = 1 << 20, {}
    for name, limit in (("whole", None), ("batches", 1 << 18)):
        with Allocated() as counted:
            found = oracle.reference64(instance, instance.inputs, produced=produced, budget_bytes=limit)
        peaks[name] = counted.peak
        assert torch.allclose(found.outputs[0], whole.outputs[0], rtol=1e-12, atol=1e-12)
        assert any("batch by batch" in note for note in found.notes) == (name == "batches")
    assert peaks["whole"] > 2 * budget
    assert peaks["batches"] < budget


def test_what_cannot_be_split_is_computed_as_a_whole(tmp_path):
    instance = instance_of(tmp_path, "x - x.mean(0)")
    produced = oracle.eager(instance, instance.inputs)
    found = oracle.reference64(instance, instance.inputs, produced=produced, budget_bytes=1 << 10)
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
