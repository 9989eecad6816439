"""Loading problems, making instances, the serialisable form, and every kind of bad input."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from problem import cases

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.problem import Problem, ProblemRef, live_problem, load_problem, load_ref

WEIGHTED = cases.model(
    "self.norm(self.linear(x)) + self.shift",
    init=(
        "self.linear = nn.Linear(10, 4)\nself.norm = nn.BatchNorm1d(4)\n"
        "self.shift = torch.ones(4)\nself.twin = self.linear"
    ),
)


def test_an_instance_names_its_tensors(tmp_path: Path) -> None:
    instance = load_problem(str(cases.write(tmp_path, WEIGHTED))).instantiate()
    assert set(instance.parameters) == {
        "linear.weight", "linear.bias", "twin.weight", "twin.bias", "norm.weight", "norm.bias",
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "shift",
    }  # fmt: skip
    assert instance.parameters["twin.weight"] is instance.parameters["linear.weight"]
    assert not instance.module.training
    assert load_problem(str(tmp_path / "problem.py"), mode="train").instantiate().module.training


def test_the_seed_decides_weights_and_inputs(tmp_path: Path) -> None:
    problem = load_problem(str(cases.write(tmp_path, WEIGHTED)))
    first, same, other = (problem.instantiate(seed=seed) for seed in (3, 3, 4))
    name = "linear.weight"
    assert torch.equal(first.parameters[name], same.parameters[name])
    assert torch.equal(first.inputs[0], same.inputs[0])
    assert not torch.equal(first.parameters[name], other.parameters[name])
    assert not torch.equal(first.inputs[0], other.inputs[0])


def test_fresh_inputs_leave_the_weights(tmp_path: Path) -> None:
    instance = load_problem(str(cases.write(tmp_path, WEIGHTED))).instantiate(seed=3)
    weight = instance.parameters["linear.weight"].clone()
    fresh = instance.fresh_inputs(9)
    assert torch.equal(fresh[0], instance.fresh_inputs(9)[0])
    assert not torch.equal(fresh[0], instance.inputs[0])
    assert torch.equal(weight, instance.parameters["linear.weight"])


def test_the_callers_random_state_is_left_alone(tmp_path: Path) -> None:
    problem = load_problem(str(cases.write(tmp_path, WEIGHTED)))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    problem.instantiate(seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_the_meta_device_holds_no_data(tmp_path: Path) -> None:
    source = cases.model("x", inputs="torch.randn(1 << 20, 1 << 20)")
    instance = load_problem(str(cases.write(tmp_path, source))).instantiate(device="meta")
    assert instance.inputs[0].is_meta


def test_tensors_that_the_file_puts_elsewhere_are_moved(tmp_path: Path) -> None:
    source = cases.model(
        "x * self.k", init="self.k = torch.ones(3, device='cpu')", inputs="torch.from_numpy(np.ones((2, 3)))"
    )
    problem = load_problem(str(cases.write(tmp_path, "import numpy as np\n" + source)))
    instance = problem.instantiate(device="meta")
    assert instance.inputs[0].is_meta
    assert instance.parameters["k"].is_meta


def test_a_function_with_described_inputs(tmp_path: Path) -> None:
    path = cases.write(tmp_path, "import torch\ndef scaled(x, y, s):\n    return x * y * s\n")
    problem = load_problem(f"{path}:scaled", inputs="f32[3, 4] f64[4] 2.5")
    x, y, s = problem.instantiate(seed=1).inputs
    assert (x.dtype, tuple(x.shape), y.dtype, tuple(y.shape), s) == (torch.float32, (3, 4), torch.float64, (4,), 2.5)
    graph = capture(problem)
    assert [leaf.ref for leaf in graph.inputs.values()] == ["in0", "in1", "in2"]


@pytest.mark.parametrize("name", ["Net", "net"])
def test_a_module_class_or_instance_by_name(tmp_path: Path, name: str) -> None:
    source = (
        f"{cases.HEADER}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.f = nn.Linear(4, 2)\n    def forward(self, x):\n        return self.f(x)\n\nnet = Net()\n"
    )
    problem = load_problem(f"{cases.write(tmp_path, source)}:{name}", inputs="f32[3,4]")
    graph = capture(problem)
    assert {leaf.ref for leaf in graph.inputs.values()} == {"in0", "param:f.weight", "param:f.bias"}
    assert problem.instantiate().run()[0].shape == (3, 2)


def test_all_dtypes_can_be_described(tmp_path: Path) -> None:
    path = cases.write(tmp_path, "def f(*tensors):\n    return tensors[0]\n")
    problem = load_problem(f"{path}:f", inputs="f32[2] f16[2] bf16[2] f64[2] i32[2] i64[2] bool[2] f32[] 3")
    found = [getattr(leaf, "dtype", leaf) for leaf in problem.instantiate().inputs]
    assert found == [
        torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.bool,
        torch.float32, 3,
    ]  # fmt: skip


def test_the_hash_follows_meaning_not_place(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    source = "n = 4\n" + cases.model("x * 2", inputs="torch.randn(n)")
    first = load_problem(str(cases.write(tmp_path, source)))
    moved = load_problem(str(cases.write(tmp_path / "other", source, name="copy.py")))
    changed = load_problem(str(cases.write(tmp_path, source + "\n", name="changed.py")))
    sized = load_problem(str(tmp_path / "problem.py"), overrides={"n": "5"})
    spelled = load_problem(str(tmp_path / "problem.py"), overrides={"n": " 5 "})
    trained = load_problem(str(tmp_path / "problem.py"), mode="train")
    assert first.hash == moved.hash
    assert sized.hash == spelled.hash
    assert len({p.hash for p in (first, changed, sized, trained)}) == 4
    assert len(first.hash) == 64


def test_a_reference_survives_json_with_the_constants_of_forward(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x + torch.tensor([1.0, 2.0, 4.0])", inputs="torch.randn(3)")
    capture(problem)
    ref = ProblemRef.model_validate_json(problem.ref.model_dump_json())
    assert ref.lifted is not None
    again = load_ref(ref)
    assert again.hash == problem.hash
    (constant,) = again.instantiate().parameters.values()
    assert constant.tolist() == [1.0, 2.0, 4.0]


def test_constants_are_found_without_a_capture(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x + torch.tensor([1.0, 2.0, 4.0])", inputs="torch.randn(3)")
    assert [value.tolist() for value in problem.instantiate().parameters.values()] == [[1.0, 2.0, 4.0]]


class Scaled(torch.nn.Module):
    """A caller's own module."""

    def __init__(self, width: int, factor: float = 2.0) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, 3)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A linear layer times a number."""
        return self.linear(x) * self.factor


def test_a_live_module_keeps_weights_and_example_inputs(tmp_path: Path) -> None:
    module = Scaled(5)
    x = torch.randn(5, 4).t()
    problem = live_problem(module, [x], tmp_path / "live")
    instance = load_ref(problem.ref).instantiate()
    assert torch.equal(instance.run()[0], module(x))
    assert instance.inputs[0].stride() == (1, 4)
    fresh = instance.fresh_inputs(1)[0]
    assert fresh.stride() == (1, 4)
    assert torch.equal(fresh.flatten().sort()[0], x.flatten().sort()[0])
    assert not torch.equal(fresh, x)
    graph = capture(problem)
    assert {leaf.ref for leaf in graph.inputs.values()} == {"in0", "param:linear.weight", "param:linear.bias"}
    assert (problem.name, problem.path.name) == ("Scaled", Path(__file__).name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 6).t(),
        lambda: torch.randn(8, 6)[1:, ::2],
        lambda: torch.randn(1, 6).expand(4, 6),
        lambda: torch.randn(()),
        lambda: torch.randn(0, 3),
    ],
    ids=["transposed", "sliced", "broadcast", "scalar", "empty"],
)
def test_layouts_survive_saving_shuffling_and_moving(tmp_path: Path, make: Callable[[], torch.Tensor]) -> None:
    x = make()
    problem = live_problem(torch.nn.functional.relu, [x], tmp_path)
    instance = problem.instantiate()
    moved = problem.instantiate(device="meta").inputs[0]
    for tensor in (instance.inputs[0], instance.fresh_inputs(3)[0], moved):
        assert (tensor.shape, tensor.stride(), tensor.storage_offset()) == (
            x.shape, x.stride(), x.storage_offset(),
        )  # fmt: skip
    assert torch.equal(instance.inputs[0], x)
    assert torch.equal(instance.fresh_inputs(3)[0].flatten().sort()[0], x.flatten().sort()[0])
    (leaf,) = capture(problem, check_dtypes=False).inputs.values()
    spec = leaf.spec
    assert (spec.shape, spec.strides, spec.offset) == (tuple(x.shape), x.stride(), x.storage_offset())


def test_examples_of_a_live_problem_cannot_be_spoilt(tmp_path: Path) -> None:
    problem = live_problem(torch.nn.functional.relu, [torch.ones(3)], tmp_path)
    problem.instantiate().inputs[0].zero_()
    assert problem.instantiate().inputs[0].sum() == 3


def test_the_hash_of_a_live_module_counts_attributes_and_shapes_but_not_weights(tmp_path: Path) -> None:
    modules = [Scaled(5), Scaled(5), Scaled(5, 3.0), Scaled(6)]
    hashes = [
        live_problem(m, [torch.randn(2, m.linear.in_features)], tmp_path / str(i)).hash for i, m in enumerate(modules)
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_a_live_function(tmp_path: Path) -> None:
    problem = live_problem(torch.nn.functional.gelu, [torch.randn(7)], tmp_path)
    assert [node.op for node in capture(problem).nodes] == ["mul", "mul", "erf", "add", "mul"]


def test_what_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="top level of a file"):
        live_problem(lambda x: x, [torch.randn(3)], tmp_path)


def test_a_folder_without_a_saved_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no saved module"):
        load_ref(ProblemRef(kind="live", path=str(tmp_path)))


ELSEWHERE = """
import json, sys
from warpsmith.kernels.problem import ProblemRef, load_ref
outputs = load_ref(ProblemRef.model_validate_json(sys.stdin.read())).instantiate(seed=2).run()
print(json.dumps([output.tolist() for output in outputs]))
"""


def test_another_process_sees_the_same_problem(tmp_path: Path) -> None:
    problem = load_problem(str(cases.write(tmp_path, WEIGHTED)))
    command = [sys.executable, "-P", "-c", ELSEWHERE]
    done = subprocess.run(command, input=problem.ref.model_dump_json(), capture_output=True, text=True, check=True)
    (elsewhere,) = json.loads(done.stdout)
    assert elsewhere == problem.instantiate(seed=2).run()[0].tolist()


def captured(path: Path | str, **options: object) -> Problem:
    """Load and capture, as a command does first."""
    problem = load_problem(str(path), **options)  # type: ignore[arg-type]
    capture(problem)
    return problem


BAD_FILES = {
    "syntax error": ("x = 1\ndef broken(:\n", ["line 2", "syntax error"]),
    "null byte": ("x = 1\0", ["syntax error"]),
    "raises on import": ("import torch\n\nvalue = {}['key']\n", ["line 3", "KeyError", "import"]),
    "exits on import": ("import sys\nsys.exit(3)\n", ["line 2", "SystemExit"]),
    "no model": ("def get_inputs():\n    return []\n", ["'Model'", "get_inputs", "define class Model"]),
    "no inputs": ("import torch\nclass Model(torch.nn.Module):\n    pass\n", ["lacks get_inputs()", "--inputs"]),
    "model is no module": ("class Model:\n    pass\ndef get_inputs():\n    return []\n", ["nn.Module"]),
    "model is a number": ("Model = 3\ndef get_inputs():\n    return []\n", ["'Model' is a int"]),
    "constructor raises": (cases.model("x", init="self.w = nn.Linear(-3, 2)"), ["line 9", "constructing"]),
    "inputs raise": (cases.model("x", inputs="torch.randn(2) @ torch.randn(3)"), ["line 15", "get_inputs()"]),
    "inputs are a number": (cases.model("x").replace("return [torch", "return 3  # [torch"), ["returns a int"]),
    "inputs hold no tensor": (cases.model("x", inputs="1, 2.0"), ["returns no tensors"]),
    "forward raises": (cases.model("x @ x"), ["line 11", "forward raised RuntimeError", "problem.py"]),
    "forward has a bug": (cases.model("y = x + 1\nreturn undefined_name"), ["line 12", "NameError"]),
    "wrong number of inputs": (cases.model("x + y", arguments="x, y"), ["forward raised TypeError"]),
    "forward returns nothing": (cases.model("return None"), ["forward returns no tensors"]),
    "forward returns a text": (cases.model("'text'"), ["forward returns no tensors"]),
    "forward returns a number": (cases.model("3"), ["forward returns no tensors"]),
}


@pytest.mark.parametrize(("source", "words"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_explained(tmp_path: Path, source: str, words: list[str]) -> None:
    path = cases.write(tmp_path, source)
    with pytest.raises(UserError) as caught:
        captured(path)
    message = str(caught.value)
    for word in [str(path), *words]:
        assert word in message
    assert "\n" not in message
    assert caught.value.exit_code == 2
    assert not isinstance(caught.value, NotYetError)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.py: no such file"):
        load_problem(str(tmp_path / "nowhere.py"))
    with pytest.raises(UserError, match="is a directory"):
        load_problem(str(tmp_path))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        load_problem(str(tmp_path / "binary.py"))


def test_impossible_sizes_list_what_can_be_set(tmp_path: Path) -> None:
    source = "rows = 4\ncols = 8\n" + cases.model(
        "self.f(x)", init="self.f = nn.Linear(8, 2)", inputs="torch.randn(rows, cols)"
    )
    path = cases.write(tmp_path, source)
    captured(path, overrides={"rows": "6"})
    with pytest.raises(UserError) as caught:
        captured(path, overrides={"cols": "9"})
    assert "rows=4, cols=9" in str(caught.value)
    assert "inside get_inputs() cannot be reached" in str(caught.value)
    with pytest.raises(UserError, match=r"get_inputs\(\) raised"):
        captured(path, overrides={"rows": "-1"})


def test_sizes_beyond_memory_are_the_users_to_change(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x", inputs="torch.zeros(1 << 30, 1 << 20)")
    with pytest.raises(UserError, match=r"out of memory.*smaller sizes"):
        problem.instantiate(device="cpu")


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ("f32[2,3", "f32[2,3"),
        ("f99[2]", "unknown dtype 'f99'"),
        ("f32[a]", "sizes of 'f32[a]'"),
        ("f32[-2]", "f32"),
        ("float", "cannot read 'float'"),
        ("3 4.5", "describes no tensor"),
        ("", "describes no tensor"),
    ],
)
def test_a_bad_description_of_inputs(tmp_path: Path, inputs: str, word: str) -> None:
    path = cases.write(tmp_path, "def f(x):\n    return x\n")
    with pytest.raises(UserError) as caught:
        load_problem(f"{path}:f", inputs=inputs)
    assert word in str(caught.value)
    assert "--inputs" in str(caught.value)


def test_callables_and_inputs_go_together(tmp_path: Path) -> None:
    path = cases.write(tmp_path, "def f(x):\n    return x\n")
    with pytest.raises(UserError, match="'g'; it has f"):
        load_problem(f"{path}:g", inputs="f32[3]")
    with pytest.raises(UserError, match="lacks get_inputs"):
        load_problem(f"{path}:f")
    with pytest.raises(UserError, match="names no callable"):
        load_problem(str(path), inputs="f32[3]")


@pytest.mark.parametrize(
    ("dtype", "name"), [("f16", "float16"), ("bf16", "bfloat16"), ("i32", "int32"), ("i64", "int64"), ("bool", "bool")]
)
def test_dtypes_of_inputs_reach_the_graph(tmp_path: Path, dtype: str, name: str) -> None:
    path = cases.write(tmp_path, "def f(x, y):\n    return x * y\n")
    graph = capture(load_problem(f"{path}:f", inputs=f"f32[3] {dtype}[3]"))
    assert {leaf.ref: leaf.spec.dtype for leaf in graph.inputs.values()} == {"in0": "float32", "in1": name}
