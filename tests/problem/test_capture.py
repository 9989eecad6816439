"""Capture: the graph means what the module computes, is made of primitives, and carries costs and layouts."""

import math
from pathlib import Path

import pytest
import torch
from problem import cases

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.interpret import interpret
from warpsmith.kernels.opgraph import NodeRef, OpGraph
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem, load_problem

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = {
    "softmax": {"batch_size": "5", "dim": "33"},
    "layer_norm": {"batch_size": "4", "features": "24"},
    "rms_norm": {"rows": "4", "width": "24"},
    "gelu": {"rows": "3", "columns": "17"},
    "swish_scale": {"rows": "3", "columns": "17"},
    "mse_loss": {"samples": "6", "outputs": "7"},
    "huber": {"samples": "6", "outputs": "7"},
    "l2_normalize": {"rows": "4", "width": "15"},
    "row_max": {"rows": "4", "width": "15"},
    "sum_columns": {"batch_size": "2", "depth": "5", "width": "6"},
    "max_pool": {"batch_size": "2", "channels": "2", "height": "9", "width": "11"},
    "depthwise": {"batch_size": "2", "channels": "3", "height": "9", "width": "11"},
    "running_sum": {"batch_size": "3", "length": "17"},
    "matmul": {"M": "5", "N": "6", "K": "7"},
    "linear_gelu": {"batch_size": "4", "in_features": "5", "out_features": "6"},
    "transpose_add": {"rows": "4", "columns": "6"},
}


def check_meaning(problem: Problem, *, check_dtypes: bool = True) -> OpGraph:
    """Assert that interpreting the graph gives what the module gives, on two draws; returns the graph."""
    graph = capture(problem, check_dtypes=check_dtypes)
    instance = problem.instantiate(seed=5)
    for inputs in (instance.inputs, instance.fresh_inputs(77)):
        expected = instance.run(inputs)
        found = interpret(graph, inputs, instance.parameters)
        assert len(found) == len(expected)
        for mine, theirs, ref in zip(found, expected, graph.outputs, strict=True):
            assert mine.dtype == theirs.dtype
            assert (tuple(mine.shape), tuple(theirs.shape)) == (graph.spec(ref.name).shape,) * 2
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
    return graph


def test_every_example_has_a_small_size() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_examples_become_graphs_of_primitives(name: str) -> None:
    graph = check_meaning(load_problem(str(EXAMPLES / f"{name}.py"), overrides=SMALL[name]))
    assert plan(graph).region.source_ops
    assert all(f"{name}.py:" in node.source or node.pattern == "constant" for node in graph.nodes)


@pytest.mark.parametrize("name", ["softmax", "matmul", "transpose_add"])
def test_examples_load_at_their_own_size(name: str) -> None:
    assert capture(load_problem(str(EXAMPLES / f"{name}.py"))).flops > 50_000


PRIMITIVE = {
    "leaky relu": ("F.leaky_relu(x, 0.1)", {}),
    "elu": ("F.elu(x, 0.7)", {}),
    "selu": ("torch.selu(x)", {}),
    "hardtanh": ("F.hardtanh(x)", {}),
    "hardsigmoid": ("F.hardsigmoid(x)", {}),
    "hardswish": ("F.hardswish(x)", {}),
    "softplus": ("F.softplus(x)", {}),
    "softsign": ("F.softsign(x)", {}),
    "mish": ("F.mish(x)", {}),
    "silu": ("F.silu(x)", {}),
    "log sigmoid": ("F.logsigmoid(x)", {}),
    "gelu tanh": ("F.gelu(x, approximate='tanh')", {}),
    "glu": ("F.glu(x)", {}),
    "log softmax": ("F.log_softmax(x, 1)", {}),
    "softmax over columns": ("F.softmax(x, 0)", {}),
    "logsumexp": ("torch.logsumexp(x, 1)", {}),
    "mean of all": ("x.mean()", {}),
    "mean keepdim": ("x.mean(dim=(0, 1), keepdim=True)", {}),
    "var": ("x.var(dim=1)", {}),
    "std of all": ("x.std()", {}),
    "var_mean": ("torch.var_mean(x, dim=-1, correction=0)", {}),
    "frobenius norm": ("torch.norm(x, p='fro')", {}),
    "norm 1": ("torch.linalg.vector_norm(x, 1, dim=1)", {}),
    "norm 3": ("torch.linalg.vector_norm(x, 3, dim=1)", {}),
    "norm inf": ("torch.linalg.vector_norm(x, float('inf'))", {}),
    "norm -inf": ("torch.linalg.vector_norm(x, -float('inf'), dim=0)", {}),
    "norm 0": ("torch.linalg.vector_norm(F.relu(x), 0, dim=1)", {}),
    "normalize": ("F.normalize(x, dim=1)", {}),
    "max of all": ("x.max()", {}),
    "max with positions": ("tuple(torch.max(x, 1))", {}),
    "min positions only": ("torch.min(x, 1)[1]", {}),
    "argmax of all": ("x.argmax()", {}),
    "argmax keepdim": ("x.argmax(keepdim=True)", {}),
    "argmin": ("x.argmin(dim=-2)", {}),
    "prod": ("x.prod(dim=1)", {}),
    "prod of all": ("x.prod()", {}),
    "any and all": ("((x > 2).any(), (x > -2).all(1), (x > 0).any(0, keepdim=True))", {}),
    "count": ("(x > 0).sum()", {}),
    "instance norm": ("F.instance_norm(x)", {"inputs": "torch.randn(2, 3, 4, 5)"}),
    "group norm": ("self.n(x)", {"init": "self.n = nn.GroupNorm(2, 4)", "inputs": "torch.randn(3, 4, 5)"}),
    "batch norm": ("self.n(x)", {"init": "self.n = nn.BatchNorm1d(10)"}),
    "rms norm": ("self.n(x)", {"init": "self.n = nn.RMSNorm(10)"}),
    "layer norm of two dims": ("F.layer_norm(x, (4, 5))", {"inputs": "torch.randn(3, 4, 5)"}),
    "smooth l1": ("F.smooth_l1_loss(x, x * x)", {}),
    "kl": ("F.kl_div(F.log_softmax(x, 1), F.softmax(x * 2, 1), reduction='batchmean')", {}),
    "hinge": ("torch.clamp(1 - x * x.sign(), min=0).mean()", {}),
    "bce": ("F.binary_cross_entropy_with_logits(x, torch.sigmoid(x))", {}),
    "cosine": ("F.cosine_similarity(x, x * x + 1, dim=1)", {}),
    "triplet": ("F.triplet_margin_loss(x, x + 1, x * 2)", {}),
    "powers": ("x.abs() ** 0.5 + x ** 3 + x ** -2 + 2 ** x + x.abs() ** 1.7 + x ** 4", {}),
    "floor division": ("(x // 0.3, torch.div(x, 0.3, rounding_mode='trunc'), x % 0.3, torch.fmod(x, 0.3))", {}),
    "floor division by a tensor": ("x // (x * 0.1)", {}),
    "alpha": ("torch.add(x, x, alpha=3) - torch.sub(x, 2, alpha=0.5) + torch.rsub(x, 1)", {}),
    "addcmul": ("torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x.abs() + 1) + torch.lerp(x, -x, 0.3)", {}),
    "clamp by tensors": ("torch.clamp(x, x - 1, x * 0.5)", {}),
    "masks": ("torch.where((x > 0) & ~(x > 1), x, 0.0).masked_fill(x < -1, 9.0)", {}),
    "triangle": ("torch.triu(x) + torch.tril(x, -1)", {}),
    "index arithmetic": ("x * torch.arange(10, device=x.device)", {}),
    "casts": ("(x > 0).float() + x.double().float()", {}),
    "isnan": ("torch.nan_to_num(x / F.relu(x)) + torch.isinf(x / F.relu(x))", {}),
    "views": ("x.t().reshape(5, 12)[1:4, ::2].unsqueeze(0).expand(2, 3, 6).permute(1, 0, 2).flip(0, 2)", {}),
    "split": ("x.split(4, dim=1)[2] + x.chunk(5, dim=1)[0] + x[:, 3:5]", {}),
    "unbind": ("x.unbind(0)[2] + x[-1] + x.select(0, 1)", {}),
    "squeeze": ("x.unsqueeze(1).unsqueeze(-1).squeeze(1) + x[:, :1].squeeze().unsqueeze(-1).unsqueeze(-1)", {}),
    "linear": ("self.f(x)", {"init": "self.f = nn.Linear(10, 4)"}),
    "linear of 3 dims": ("self.f(x)", {"init": "self.f = nn.Linear(5, 3)", "inputs": "torch.randn(2, 4, 5)"}),
    "addmm": ("torch.addmm(x @ x.t(), x, x.t(), beta=0.5, alpha=2)", {}),
    "bmm": ("torch.bmm(x, x.transpose(1, 2)) + x @ x.mT", {"inputs": "torch.randn(2, 3, 4)"}),
    "einsum": ("torch.einsum('bij,kj->bik', x, x[0])", {"inputs": "torch.randn(2, 3, 4)"}),
    "matrix times vector": ("x @ x[0]", {}),
    "dot": ("torch.dot(x[0], x[1])", {}),
    "dropout in eval mode": ("F.dropout(x, 0.5, self.training) * 2", {}),
    "identity": ("x.contiguous().clone()", {}),
    "trigonometry": ("torch.sin(x) + torch.cos(x) + torch.tan(x) + torch.atan2(x, x + 3) + torch.erfc(x)", {}),
    "rounding": ("x.floor() + x.ceil() + x.round() + x.trunc() + x.frac()", {}),
}  # fmt: skip


@pytest.mark.parametrize(("forward", "parts"), PRIMITIVE.values(), ids=PRIMITIVE)
def test_operators_become_primitives_with_the_same_meaning(tmp_path: Path, forward: str, parts: dict[str, str]) -> None:
    graph = check_meaning(cases.problem(tmp_path, forward, **parts))
    assert [node.op for node in graph.nodes if node.pattern == "anchor"] == []


ANCHORS = {
    "convolution": ("self.c(x)", {"init": "self.c = nn.Conv1d(3, 4, 3)", "inputs": "torch.randn(2, 3, 9)"}),
    "max_pool2d_with_indices": ("F.max_pool2d(x, 2)", {"inputs": "torch.randn(2, 3, 8, 8)"}),
    "avg_pool2d": ("F.avg_pool2d(x, 2)", {"inputs": "torch.randn(2, 3, 8, 8)"}),
    "cummax": ("torch.cummax(x, 1)[0]", {}),
    "cat": ("torch.cat([x, x * 2], 1)", {}),
    "sort": ("torch.sort(x, 1)[0]", {}),
    "topk": ("torch.topk(x, 3)[1]", {}),
    "scaled_dot_product_attention": (
        "F.scaled_dot_product_attention(x, x, x)",
        {"inputs": "torch.randn(2, 2, 5, 4)"},
    ),
    "gru": ("self.r(x)[0]", {"init": "self.r = nn.GRU(4, 3)", "inputs": "torch.randn(5, 2, 4)"}),
    "lstm": ("self.r(x)[0]", {"init": "self.r = nn.LSTM(4, 3)", "inputs": "torch.randn(5, 2, 4)"}),
}


@pytest.mark.parametrize("op", ANCHORS)
def test_anchors_stay_whole(tmp_path: Path, op: str) -> None:
    forward, parts = ANCHORS[op]
    graph = check_meaning(cases.problem(tmp_path, forward, **parts))
    assert [node.op for node in graph.nodes if node.pattern == "anchor"] == [op]


def test_softmax_is_two_reductions_and_three_maps(tmp_path: Path) -> None:
    graph = capture(cases.problem(tmp_path, "torch.softmax(x, -1)"))
    assert [node.op for node in graph.nodes] == ["amax", "sub", "exp", "sum", "div"]
    assert [node.args[1:] for node in graph.nodes if node.pattern == "reduction"] == [((1,), True)] * 2
    assert (graph.flops, graph.floor_bytes) == (5 * 60, 2 * 240)


def test_the_variance_of_shifted_data_does_not_cancel(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x.var(dim=1)", inputs="torch.randn(6, 50) + 1e4")
    instance = problem.instantiate(seed=1)
    exact = instance.inputs[0].double().var(dim=1)
    found = interpret(capture(problem), instance.inputs, instance.parameters)[0]
    assert torch.allclose(found.double(), exact, rtol=1e-3)


def test_interpretation_in_double_precision_is_the_oracle(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "F.gelu(x).to(torch.float32) * 0.1")
    instance = problem.instantiate(seed=1)
    found = interpret(capture(problem), instance.inputs, {}, precision=torch.float64)[0]
    exact = torch.nn.functional.gelu(instance.inputs[0].double()) * 0.1
    assert found.dtype is torch.float64
    assert torch.allclose(found, exact, rtol=1e-13, atol=0)


def test_costs_of_a_product(tmp_path: Path) -> None:
    graph = capture(cases.problem(tmp_path, "x @ x.t()"))
    product = graph.nodes[-1]
    assert (product.op, product.flops) == ("mm", 2 * 6 * 6 * 10)
    assert product.bytes_moved == 4 * (60 + 60 + 36)
    assert graph.node_index[product.name] is product


def test_costs_of_a_convolution_are_counted(tmp_path: Path) -> None:
    forward, parts = ANCHORS["convolution"]
    graph = capture(cases.problem(tmp_path, forward, **parts))
    assert graph.nodes[0].flops == 2 * (2 * 4 * 7) * 3 * 3


def test_a_node_knows_its_line(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "y = torch.exp(x)\nreturn y + 1")
    lines = problem.source.splitlines()
    where = [node.source.rsplit(":", 1) for node in capture(problem).nodes]
    assert [path for path, _ in where] == [str(problem.path)] * 2
    assert [lines[int(line) - 1].strip() for _, line in where] == ["y = torch.exp(x)", "return y + 1"]


def test_dead_code_and_unused_inputs_leave_no_node(tmp_path: Path) -> None:
    problem = cases.problem(
        tmp_path,
        "_ = torch.cumsum(x, 1)\nreturn y * 2",
        arguments="x, y",
        inputs="torch.randn(3), torch.randn(4)",
    )
    graph = capture(cases.problem(tmp_path, "torch.cumsum(x, 0)[0] * 0 + x[0] if False else x[1] * 2"))
    assert [node.op for node in graph.nodes] == ["select", "mul"]
    graph = check_meaning(
        cases.problem(
            tmp_path,
            "_ = torch.exp(x)\nreturn y * 2",
            arguments="x, y",
            inputs="torch.randn(3, 3), torch.randn(4)",
        )
    )
    assert [leaf.ref for leaf in graph.inputs.values()] == ["in1"]
    assert graph.input_count == 2
    assert problem.name == "problem"


def test_outputs_may_be_inputs_and_views_of_them(tmp_path: Path) -> None:
    graph = check_meaning(cases.problem(tmp_path, "(x, x.t(), x.clone())"))
    assert graph.outputs[0] == graph.outputs[2] == NodeRef("x")
    assert [node.op for node in graph.nodes] == ["permute"]


def test_inputs_keep_their_strides_and_offset(tmp_path: Path) -> None:
    graph = check_meaning(cases.problem(tmp_path, "x + 1", inputs="torch.randn(10, 6).t()[1:, 2:]"))
    spec = graph.inputs["x"].spec
    assert (spec.shape, spec.strides, spec.offset) == ((5, 8), (1, 6), 13)


def test_nested_inputs_are_numbered_flat(tmp_path: Path) -> None:
    problem = cases.problem(
        tmp_path,
        "pair[0] * 2 + pair[1] + y",
        arguments="pair, y",
        inputs="(torch.randn(4), torch.randn(4)), torch.randn(4)",
    )
    graph = check_meaning(problem)
    assert sorted(leaf.ref for leaf in graph.inputs.values()) == ["in0", "in1", "in2"]


def test_a_float_input_stays_a_runtime_scalar(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x * s + s", arguments="x, s", inputs="torch.randn(6), 2.5")
    graph = check_meaning(problem)
    leaf = graph.inputs["s"]
    assert (leaf.ref, leaf.scalar, leaf.spec.shape, leaf.spec.dtype) == ("in1", True, (), "float32")
    x = torch.ones(6)
    assert torch.equal(interpret(graph, [x, 3.0], {})[0], x * 6)


def test_a_float_beside_double_tensors_is_double(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x * s", arguments="x, s", inputs="torch.randn(6, dtype=torch.float64), 0.1")
    assert check_meaning(problem).inputs["s"].spec.dtype == "float64"


@pytest.mark.parametrize("forward", ["x * 2 if s > 1 else x * 3", "x[: int(s)] * s", "x * float(s)"])
def test_a_float_that_decides_structure_is_baked_in(tmp_path: Path, forward: str) -> None:
    problem = cases.problem(tmp_path, forward, arguments="x, s", inputs="torch.randn(6), 2.5")
    assert [leaf.ref for leaf in check_meaning(problem).inputs.values()] == ["in0"]


def test_an_int_input_is_baked_in(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x.sum(d) * d", arguments="x, d", inputs="torch.randn(6, 4), 1")
    graph = check_meaning(problem)
    assert (len(graph.inputs), graph.input_count) == (1, 2)


def test_parameters_buffers_attributes_and_constants_have_names(tmp_path: Path) -> None:
    problem = cases.problem(
        tmp_path,
        "x * self.w + self.b - self.k + torch.tensor([1.0, 2.0, 3.0], device=x.device) * torch.tensor(0.5)",
        init=(
            "self.w = nn.Parameter(torch.randn(3))\nself.register_buffer('b', torch.randn(3))\n"
            "self.k = torch.tensor([3.0, 1.0, 2.0])"
        ),
        inputs="torch.randn(5, 3)",
    )
    graph = check_meaning(problem)
    refs = {leaf.ref for leaf in graph.inputs.values()}
    assert refs >= {"in0", "param:w", "param:b", "param:k"}
    assert len(refs) == 5
    assert set(problem.constants) == {ref.removeprefix("param:") for ref in refs} - {"in0", "w", "b", "k"}
    assert [node.args[1] for node in graph.nodes if node.op == "full"] == [0.5]


@pytest.mark.parametrize("class_line", ["", "    k = None\n"], ids=["plain", "with a value of the class"])
def test_arithmetic_on_attributes_alone_is_traced(tmp_path: Path, class_line: str) -> None:
    text = cases.model(
        "x + (self.k * 0.5 + 1).exp()", init="self.k = torch.tensor([3.0, 1.0, 2.0])", inputs="torch.randn(5, 3)"
    )
    text = text.replace("class Model(nn.Module):\n", f"class Model(nn.Module):\n{class_line}")
    graph = check_meaning(load_problem(str(cases.write(tmp_path, text))))
    assert {leaf.ref for leaf in graph.inputs.values()} == {"in0", "param:k"}


@pytest.mark.parametrize("forward", ["F.batch_norm(x, self.m, self.v, training=True)", "x + self.v + self.m.mul_(0.5)"])
def test_attributes_that_forward_changes_are_refused(tmp_path: Path, forward: str) -> None:
    init = "self.m = torch.zeros(3)\nself.v = torch.ones(3)"
    problem = cases.problem(tmp_path, forward, init=init, inputs="torch.randn(5, 3)")
    with pytest.raises(NotYetError, match=r"forward changes m in place.*clone\(\)"):
        capture(problem)


def test_the_graph_is_the_same_every_time(tmp_path: Path) -> None:
    path = str(cases.write(tmp_path, cases.model("F.layer_norm(torch.softmax(x, 1), (10,)) @ x.t()")))
    assert capture(load_problem(path)) == capture(load_problem(path))


def test_a_constructor_that_needs_values_is_built_on_the_cpu(tmp_path: Path) -> None:
    problem = cases.problem(tmp_path, "x * self.gain", init="self.gain = torch.tensor([4.0, 9.0]).sqrt().sum().item()")
    graph = check_meaning(problem)
    assert math.isclose(graph.nodes[0].args[1], 5.0)


def test_train_mode_uses_batch_statistics(tmp_path: Path) -> None:
    source = cases.model("F.batch_norm(x, None, None, training=self.training)")
    path = str(cases.write(tmp_path, source.replace("training=self.training", "training=True")))
    graph = check_meaning(load_problem(path, mode="train"))
    assert {node.op for node in graph.nodes if node.pattern == "reduction"} == {"sum"}


NOT_YET = {
    "changes its input": ("x.add_(1)\nreturn x * 2", {}, "in place"),
    "keeps state": ("self.h = self.h + x\nreturn self.h * 2", {"init": "self.h = torch.zeros(6, 10)"}, "self.h"),
    "changes a parameter": (
        "self.h.copy_(x[0])\nreturn x * self.h",
        {"init": "self.h = nn.Parameter(torch.zeros(10))"},
        "h in place",
    ),
    "changes a buffer": (
        "self.h.add_(1)\nreturn x * self.h",
        {"init": "self.register_buffer('h', torch.zeros(10))"},
        "h in place",
    ),
    "branches on data": ("x if x.sum() > 0 else -x", {}, "depends on values"),
    "shape from data": ("x[x > 0]", {}, "depends on values"),
    "int16 input": ("x * 2", {"inputs": "torch.arange(6).to(torch.int16)"}, "in0 is int16"),
    "byte input": ("x + 1", {"inputs": "torch.ones(3).to(torch.uint8)"}, "in0 is uint8"),
    "complex input": ("x * 2", {"inputs": "torch.randn(6).to(torch.complex64)"}, "in0 is complex64"),
    "byte buffer": (
        "x * self.w",
        {"init": "self.register_buffer('w', torch.ones(10, dtype=torch.uint8))"},
        "param:w is uint8",
    ),
    "number beside tensors": ("(x, 3)", {}, "Python value"),
}


@pytest.mark.parametrize(("forward", "parts", "message"), NOT_YET.values(), ids=NOT_YET)
def test_what_is_not_supported_yet_says_so(tmp_path: Path, forward: str, parts: dict[str, str], message: str) -> None:
    with pytest.raises(NotYetError, match=message):
        capture(cases.problem(tmp_path, forward, **parts))


def test_integer_inputs_that_nothing_reads_and_integer_intermediates_are_fine(tmp_path: Path) -> None:
    problem = cases.problem(
        tmp_path,
        "x * (torch.arange(10) % 3 == 0)",
        arguments="x, n",
        inputs="torch.randn(6, 10), torch.arange(3)",
    )
    assert [leaf.ref for leaf in capture(problem).inputs.values()] == ["in0"]


@pytest.mark.parametrize("layer", ["GRU", "LSTM"])
def test_a_recurrent_layer_stays_whole_and_is_not_walked_through(tmp_path: Path, layer: str) -> None:
    from torch._decomp import decompositions

    cells = (decompositions.gru_cell, decompositions.lstm_cell)
    init = f"self.r = nn.{layer}(5, 7, num_layers=2, batch_first=True, bidirectional=True)"
    problem = cases.problem(tmp_path, "self.r(x)[0]", init=init, inputs="torch.randn(3, 11, 5)")
    anchors = [node for node in capture(problem).nodes if node.pattern == "anchor"]
    assert [(node.op, node.out.shape) for node in anchors] == [(layer.lower(), (3, 11, 14))]
    assert (decompositions.gru_cell, decompositions.lstm_cell) == cells


def test_a_state_that_is_written_before_it_is_read_may_change(tmp_path: Path) -> None:
    init = "self.h = torch.zeros(6, 10)\nself.f = nn.Linear(10, 10)"
    forward = "self.h.copy_(s)\nself.h = torch.tanh(self.f(self.h))\nreturn self.h + x"
    problem = cases.problem(
        tmp_path, forward, init=init, arguments="x, s", inputs="torch.randn(6, 10), torch.randn(6, 10)"
    )
    read = {leaf.ref for leaf in check_meaning(problem).inputs.values()}
    assert read == {"in0", "in1", "param:f.weight", "param:f.bias"}
