"""A reference module that a model wrote: nothing runs before its text is approved, and then not in this process."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference.modules import ATTEMPTS, HONEST, module

from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import OptimizeSettings, optimize_bench
from warpsmith.app.reference import approve_reference, reopened
from warpsmith.app.workbench import bench_for
from warpsmith.kernels.capture import MAX_OPERATORS, capture
from warpsmith.kernels.errors import NotYetError, SandboxError, UserError, WorkerDied, WorkerExceeded, WorkerKilled
from warpsmith.kernels.graph_json import decoded, encoded
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.overrides import run_module
from warpsmith.kernels.problem import ProblemRef, load_problem, load_ref
from warpsmith.kernels.reference.checked import filled_memory
from warpsmith.kernels.reference.held import HeldProblem
from warpsmith.kernels.reference.rules import reference_hash, refuse_reference
from warpsmith.kernels.reference.state import PlainState
from warpsmith.tools.jail import ended, held_problem
from warpsmith.tools.operands import operands_of

TEXT = HONEST["parameter"]


def loaded() -> list[str]:
    """Modules of problems that this process has run."""
    return [name for name in sys.modules if name.startswith("warpsmith_problem")]


def test_nothing_is_kept_or_run_without_the_approval_of_this_very_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the text that was approved"):
        approve_reference(TEXT, reference_hash(TEXT + " "), tmp_path / "kept")
    bad = ATTEMPTS["torch.load"]
    with pytest.raises(UserError, match=r"torch\.load is not among"):
        approve_reference(bad, reference_hash(bad), tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_an_approved_module_becomes_a_run_without_being_imported_here(tmp_path: Path) -> None:
    before = loaded()
    problem, approval = approve_reference(TEXT, reference_hash(TEXT), tmp_path)
    bench = bench_for(problem, device="cpu", arch=None, approval=approval)
    settings = OptimizeSettings(problem="", device="cpu", budget=2, verdicts=1, out=tmp_path / "runs")
    finished = optimize_bench(bench, settings, QuietDisplay())
    assert finished.exit_code == 0
    assert finished.result.best is not None
    assert finished.result.best.shape_specific is False
    assert loaded() == before
    config = json.loads((finished.folder / "manifest.json").read_text())["config"]
    assert config["approval"] == {"sha256": reference_hash(TEXT), "at": approval.at}
    assert "class ModelNew" in (finished.folder / "best" / "model_new.py").read_text()
    again = reopened(config)
    assert again is not None
    assert again.hash == problem.hash
    (tmp_path / "reference.py").write_text(TEXT + "\n")
    with pytest.raises(UserError, match="not the text that was approved"):
        reopened(config)


def test_what_the_jail_tells_is_what_a_trace_here_would_say(tmp_path: Path) -> None:
    problem, _ = approve_reference(TEXT, reference_hash(TEXT), tmp_path)
    (tmp_path / "own.py").write_text(TEXT)
    own = load_problem(str(tmp_path / "own.py"))
    graph = capture(own)
    here = json.dumps(encoded(graph)).replace("own.py", "reference.py")
    assert json.dumps(encoded(capture(problem))) == here
    assert operands_of(problem) == operands_of(own)
    assert problem.hash == own.hash


def test_this_process_refuses_to_run_it(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(TEXT)
    problem = load_ref(ProblemRef(kind="reference", path=str(path), approved=reference_hash(TEXT)))
    with pytest.raises(SandboxError, match="confined processes alone"):
        problem.instantiate(device="meta", seed=0)
    with pytest.raises(UserError, match="not the text that was approved"):
        held_problem(ProblemRef(kind="reference", path=str(path)))


@pytest.mark.slow
def test_a_module_that_fails_or_never_ends_is_an_error_of_the_input(tmp_path: Path) -> None:
    wrong = module("return x @ x")
    with pytest.raises(UserError, match="line 9: forward raised"):
        approve_reference(wrong, reference_hash(wrong), tmp_path)[0].graph()
    endless = module("for i in range(1000000000):\n    x = x + 1.0\nreturn x")
    path = tmp_path / "endless.py"
    path.write_text(endless)
    with pytest.raises(UserError, match="did not end within 2 s"):
        held_problem(ProblemRef(kind="reference", path=str(path), approved=reference_hash(endless)), timeout_s=2.0)


@pytest.mark.parametrize("data", [[], {"a": 1, "b": 2}, {"os": []}, {"NodeRef": {"no": 1}}, {"eval": "1"}])
def test_data_of_another_shape_makes_no_graph(data: object) -> None:
    with pytest.raises(ValueError, match="no "):
        decoded(data)


def test_a_graph_survives_its_way(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HONEST["softmax"])
    graph = capture(load_problem(str(tmp_path / "m.py")))
    back = decoded(json.loads(json.dumps(encoded(graph))))
    assert isinstance(back, OpGraph)
    assert back == graph
    marked = replace(graph, load_time=frozenset({"b", "a"}))
    assert decoded(json.loads(json.dumps(encoded(marked)))) == marked
    with pytest.raises(TypeError, match="holds no set"):
        encoded({1, 2})


def test_only_memory_is_blamed_on_sizes() -> None:
    crashed = ended(WorkerDied("the process running facts_job ended by SIGSEGV"))
    assert "SIGSEGV" in crashed
    assert "smaller" not in crashed
    for kind in (WorkerKilled, WorkerExceeded):
        assert "make them smaller" in ended(kind("the process running facts_job ended by SIGKILL"))


def held(text: str, folder: Path) -> HeldProblem:
    """The problem of an approved text."""
    return approve_reference(text, reference_hash(text), folder)[0]


ATTENTION = "q = torch.ones(1, 1, 4, 8)\nk = torch.ones(1, {heads}, {keys}, 8)\nv = torch.ones(1, 1, 64, 8)\n"
ATTENTION += "self.s = float(F.scaled_dot_product_attention(q, k, v).sum())"


def test_attention_reads_no_keys_that_are_not_there(tmp_path: Path) -> None:
    assert held(module("return x * self.s", ATTENTION.format(heads=1, keys=64)), tmp_path).graph().nodes
    for heads, keys in ((1, 4), (1, 128), (2, 64)):
        with pytest.raises(UserError, match="differ in more than their last size"):
            held(module("return x * self.s", ATTENTION.format(heads=heads, keys=keys)), tmp_path)


def test_memory_that_nobody_filled_holds_nothing_of_others(tmp_path: Path) -> None:
    stale = "self.a = float(torch.empty(4096)[7])\nself.b = float(torch.ones(2).new_empty(4096, dtype=torch.int64)[7])"
    graph = held(module("return x * self.a + self.b", stale), tmp_path).graph()
    numbers = [leaf for node in graph.nodes for leaf in node.args if isinstance(leaf, float)]
    assert any(math.isnan(number) for number in numbers)
    assert float(2**63) in numbers


def test_filled_memory_changes_no_draw() -> None:
    def drawn() -> list[torch.Tensor]:
        torch.manual_seed(1)
        weight = torch.nn.init.kaiming_uniform_(torch.nn.Parameter(torch.empty(16, 16)))
        return [weight.detach(), torch.randn(9), *torch.nn.Linear(4, 4).state_dict().values()]

    before = drawn()
    with filled_memory():
        inside = drawn()
        assert torch.empty(3).isnan().all()
    assert all(torch.equal(one, other) for one, other in zip(before, inside, strict=True))
    assert torch.get_deterministic_debug_mode() == 0


ALIASES = {
    "alias set": ("a = self.items\na[0] = a[0] + 1\nreturn x * a[0]", "self.items = [0]"),
    "alias grown": ("a = self.items\na.append(1)\nreturn x * len(a)", "self.items = [0]"),
    "alias in a loop": ("for a in self.rows:\n    a[0] = a[0] + 1\nreturn x * self.rows[0][0]", "self.rows = [[0]]"),
    "alias added to": ("a = self.items\na += [1]\nreturn x * len(a)", "self.items = [0]"),
    "alias once": ("a = self.items\nif len(a) < 2:\n    a.append(1)\nreturn x * len(a)", "self.items = [0]"),
    "list of a layer": (
        "k = self.pool.kernel_size\nk[0] = k[0] + 1\nreturn x * k[0]",
        "self.pool = nn.AvgPool2d([1, 1])",
    ),
    "layers": ("a = self.layers\na.append(a[0])\nreturn x * len(a)", "self.layers = nn.ModuleList([nn.ReLU()])"),
    "generator": ("return x * sum(self.g)", "self.g = (y for y in [1, 2])"),
    "generator in a list": ("return x * sum(self.g[0])", "self.g = [zip([1], [2])]"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_what_outlives_a_call_is_found_under_any_name(name: str, tmp_path: Path) -> None:
    text = module(*ALIASES[name])
    assert refuse_reference(text) is None
    made = run_module(text, tmp_path / "m.py", name=f"alias_{abs(hash(name))}", overrides={})
    model = made.Model()
    with pytest.raises(UserError, match=r"outlives the call|one call uses up"):
        called(model, tmp_path)


def called(model: torch.nn.Module, path: Path) -> None:
    """A call of a module that has to leave nothing behind."""
    state = PlainState(path, model)
    model(torch.ones(2, 16))
    state.check_unchanged(model)


def test_torch_may_keep_house_in_its_own_layers(tmp_path: Path) -> None:
    layers = [torch.nn.LSTM(16, 16), torch.nn.GRU(16, 4), torch.nn.AvgPool1d(2), torch.nn.BatchNorm1d(16)]
    for layer in layers:
        called(layer, tmp_path)


@pytest.mark.parametrize("name", ["alias once", "list of a layer", "generator"])
def test_a_trace_refuses_what_outlives_a_call(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"reference\.py: .*(outlives the call|one call uses up)"):
        held(module(*ALIASES[name]), tmp_path)


def test_what_cannot_be_traced_leaves_nothing_either(tmp_path: Path) -> None:
    depends = "if float(x.sum()) > 1e9:\n    x = x * 2.0\n"
    numbers = module(f"{depends}a = self.items\na[0] = a[0] + 1\nreturn x * a[0]", "self.items = [0]")
    weights = module(f"{depends}w = self.w\nw.add_(1.0)\nreturn x * w", "self.w = nn.Parameter(torch.zeros(16))")
    listed = module(f"{depends}w = self.w[0]\nw.add_(1.0)\nreturn x * w", "self.w = [torch.zeros(16)]")
    for kept in (numbers, weights, listed):
        with pytest.raises(UserError, match="outlives the call"):
            held(kept, tmp_path)
    with pytest.raises(NotYetError, match="depends on values"):
        held(module(f"{depends}return x * 2.0"), tmp_path).graph()


def test_a_list_made_in_the_call_may_grow(tmp_path: Path) -> None:
    forward = "parts = [x]\nfor layer in self.layers:\n    parts.append(layer(x))\nreturn torch.cat(parts, 1)"
    init = "self.layers = nn.ModuleList([nn.ReLU(), nn.LSTM(16, 16)])\nself.sizes = [1, 2]\nself.kept = [torch.ones(2)]"
    assert held(module(forward.replace("layer(x)", "x.relu()"), init), tmp_path).graph().nodes


def test_a_graph_has_a_largest_size(tmp_path: Path) -> None:
    wide = module("return torch.cat(x.split(1), 0)").replace("randn(8, 16)", f"randn({MAX_OPERATORS})")
    with pytest.raises(UserError, match=r"at most 8,192 are taken: make its loops shorter"):
        held(wide, tmp_path)
