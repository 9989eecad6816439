"""Rewritten graphs as ways of a plan: chosen by the model, named, labelled, and judged at hidden shapes as well."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_problems import Text, problem

from warpsmith.app.workbench import Bench, open_bench, roof_for, specs_of
from warpsmith.graph import wishes
from warpsmith.graph.run import make_context
from warpsmith.graph.state import SearchSettings, SearchState
from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import is_of
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import family_named, is_template, opt_ins, specs_for
from warpsmith.kernels.families.rewritten import after_rewrites
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.plan import plan
from warpsmith.kernels.records import Outcome
from warpsmith.kernels.rewrites.registry import rewritten
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore

DEVICE = model_for("sm_90")

LINEAR_SUM = (
    "self.a = nn.Linear(97, 41)",
    "return self.a(x).sum(dim=1, keepdim=True) * 2",
    "torch.randn(6, 97)",
)
OTHERS: dict[tuple[str, ...], Text] = {
    ("spatial_sum",): (
        "self.a = nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1, output_padding=1)",
        "return (self.a(x) * 0.5).mean(dim=(2, 3))",
        "torch.randn(2, 3, 7, 6)",
    ),
    ("pool_fold",): (
        "self.a = nn.ConvTranspose3d(2, 3, 3, stride=2, padding=1)\nself.n = nn.BatchNorm3d(3)",
        "y = nn.functional.avg_pool3d(self.n(self.a(x)), 2)\nreturn torch.tanh(y)",
        "torch.randn(2, 2, 5, 6, 4)",
    ),
    ("pool_first",): (
        "self.n = nn.BatchNorm2d(6)\nself.a = nn.Conv2d(6, 3, 1, bias=False)",
        "return nn.functional.avg_pool2d(self.a(torch.relu(self.n(x))), 2)",
        "torch.randn(2, 6, 9, 8)",
    ),
    ("phases",): (
        "self.a = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)",
        "return torch.tanh(self.a(x)) * 2",
        "torch.randn(2, 3, 7, 6)",
    ),
    ("unit_stride",): (
        "self.a = nn.ConvTranspose2d(4, 6, (3, 2), padding=1, groups=2)",
        "return self.a(x)",
        "torch.randn(2, 4, 9, 8)",
    ),
    ("fold_norms",): (
        "self.a = nn.Conv2d(3, 5, 3)\nself.n = nn.BatchNorm2d(5)\nself.b = nn.Conv2d(5, 4, 1)",
        "return torch.tanh(self.b(torch.relu(self.n(self.a(x)))))",
        "torch.randn(2, 3, 9, 8)",
    ),
    ("fold_affine",): (
        "self.a = nn.Conv2d(3, 5, 3)\nself.n = nn.BatchNorm2d(5)",
        "return self.n(self.a(x)) * 2",
        "torch.randn(2, 3, 9, 8)",
    ),
}


def bench_of(folder: Path, text: Text) -> Bench:
    path = problem(folder, text).path
    return open_bench(str(path), device="cpu", arch="sm_90", overrides={}, inputs=None, mode="eval", jobs=1)


def spec_after(bench: Bench, names: tuple[str, ...]) -> KernelSpec:
    """The preferred search space of the rewritten graph, whether or not the model has it cheaper at this size."""
    way = plan(rewritten(bench.graph, names), device=DEVICE).region
    return after_rewrites(specs_for(way, DEVICE)[0], names)


def judged(bench: Bench, spec: KernelSpec) -> Outcome:
    async def verdict() -> Outcome:
        async with bench.evaluator({spec.family.name: spec}, None, None) as evaluator:
            return (await evaluator.evaluate([spec.emit(spec.sensible())], level="full"))[0]

    return asyncio.run(verdict())


def check_judged(folder: Path, text: Text, names: tuple[str, ...]) -> None:
    bench = bench_of(folder, text)
    outcome = judged(bench, spec_after(bench, names))
    assert outcome.status == "ok", outcome.failure
    assert outcome.precision_class == "rewritten"
    assert outcome.family.split("+")[1:] == list(names)
    assert outcome.shape_specific is False


def test_a_rewritten_graph_is_verified_at_hidden_shapes(tmp_path: Path) -> None:
    check_judged(tmp_path, LINEAR_SUM, ("linear_sum",))


@pytest.mark.slow
@pytest.mark.parametrize("names", OTHERS, ids=lambda names: names[0])
def test_every_rewrite_is_verified_at_hidden_shapes(names: tuple[str, ...], tmp_path: Path) -> None:
    check_judged(tmp_path, OTHERS[names], names)


def large(folder: Path) -> Bench:
    text = tuple(part.replace("97", "4096").replace("41", "8192").replace("(6,", "(1024,") for part in LINEAR_SUM)
    return bench_of(folder, (text[0], text[1], text[2]))


def test_the_model_chooses_and_the_name_tells(tmp_path: Path) -> None:
    bench = large(tmp_path)
    specs = specs_of(bench)
    assert list(specs) == ["composer", "composer+linear_sum"]
    made = {name: spec.emit(spec.sensible()) for name, spec in specs.items()}
    assert [one.precision_class for one in made.values()] == ["exact", "rewritten"]
    assert "or rewritten by linear_sum" in bench.plan().describe()
    one = made["composer+linear_sum"]
    assert is_of(specs[one.family], one)
    assert not is_of(specs[one.family], one.model_copy(update={"precision_class": "exact"}))


def test_a_rewritten_graph_has_a_roof_of_its_own(tmp_path: Path) -> None:
    bench = large(tmp_path)
    specs = specs_of(bench)
    of_problem = roof_for(specs, bench.machine)
    evaluator = bench.evaluator(specs, None, of_problem)
    assert list(evaluator.roofs) == ["composer+linear_sum"]
    assert of_problem is not None
    assert evaluator.roofs["composer+linear_sum"].floor_us < of_problem.gate_us


def test_a_rewrite_that_costs_more_is_no_way(tmp_path: Path) -> None:
    few_rows = (
        "self.a = nn.Linear(4096, 4096)\nself.n = nn.BatchNorm1d(4096)",
        "return self.n(self.a(x))",
        "torch.randn(8, 4096)",
    )
    graph = capture(problem(tmp_path, few_rows))
    rewritten(graph, ("fold_affine",))
    assert plan(graph, device=DEVICE).rewritten is None


def test_names_of_rewritten_families_are_known() -> None:
    assert family_named("composer+linear_sum+unit_reductions").name == "composer+linear_sum+unit_reductions"
    assert is_template("row+linear_sum")
    assert opt_ins("row+linear_sum") == opt_ins("row")
    assert not is_template("row+nothing")
    assert not is_template("freeform+linear_sum")


def test_who_wants_arithmetic_as_it_was_lowered_gets_no_rewritten_family(tmp_path: Path) -> None:
    specs = list(specs_of(large(tmp_path)).values())
    store = RunStore.create("large", tmp_path / "runs")
    context = make_context(specs, NullEvaluator(), store, SearchSettings(), lambda kind, data: None)
    state: SearchState = {"pins": {}}  # type: ignore[typeddict-item]
    assert [specs[i].family.name for i in wishes.families(context, state)] == ["composer", "composer+linear_sum"]
    state["pins"] = {"precision": "exact"}
    assert [specs[i].family.name for i in wishes.families(context, state)] == ["composer"]
    store.close()
