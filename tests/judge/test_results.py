"""Library steps write into place without a copy where ATen can, and leave their result where it is where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.library import ALLOWED, leaves_its_result, overload
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep, View
from warpsmith.sandbox.cuda.bound import Bound
from warpsmith.sandbox.cuda.left_outputs import LeftOutputs, left_outputs
from warpsmith.sandbox.cuda.library import LibraryError, as_planes, library_call, library_result
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.sandbox.results import Results, like
from warpsmith.tools.compile import Compiler
from warpsmith.tools.plan_file import plan_of

GROWS = {
    "stride": [2, 2], "padding": [0, 0], "dilation": [1, 1], "transposed": True, "output_padding": [0, 0], "groups": 1,
}  # fmt: skip
PLAN = LaunchPlan(
    buffers={"t": Buffer(dtype="float32", shape=(2, 4, 4, 4), init="result")},
    views={"flat": View(of="t", shape=(2, 64), strides=(64, 1))},
    steps=(
        LibraryStep(library="convolution", args=("in0", "param:w"), kwargs=GROWS, out="t"),
        LibraryStep(library="mm", args=("flat", "param:m"), out="out0"),
        LibraryStep(library="cumsum", args=("t",), kwargs={"dim": 1}, out="out1"),
        LibraryStep(library="cumsum", args=("in0",), kwargs={"dim": 1}, out="out2"),
    ),
)  # fmt: skip
POOLS = {
    "max_pool2d": (torch.nn.functional.max_pool2d, {"kernel_size": [2, 2]}),
    "max_pool3d": (torch.nn.functional.max_pool3d, {"kernel_size": [2, 2, 2]}),
    "adaptive_max_pool2d": (torch.nn.functional.adaptive_max_pool2d, {"output_size": [2, 3]}),
    "adaptive_max_pool3d": (torch.nn.functional.adaptive_max_pool3d, {"output_size": [2, 3, 1]}),
    "adaptive_avg_pool2d": (torch.nn.functional.adaptive_avg_pool2d, {"output_size": [2, 3]}),
    "adaptive_avg_pool3d": (torch.nn.functional.adaptive_avg_pool3d, {"output_size": [2, 3, 1]}),
}


@pytest.mark.parametrize("name", [name for name, operator in ALLOWED.items() if operator.out is not None])
def test_no_out_form_of_the_list_is_one_that_computes_and_copies(name: str) -> None:
    """ATen generates an `out=` for what has none: one kernel for every device, which calls the other overload."""
    into = overload(ALLOWED[name].out or "")
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(into.name(), "CompositeExplicitAutograd")
    assert {argument.name for argument in into._schema.arguments if argument.is_out} == set(ALLOWED[name].outs)
    assert not leaves_its_result(name, {})


def test_what_has_no_out_form_leaves_its_result() -> None:
    assert leaves_its_result("convolution", GROWS)
    assert not leaves_its_result("convolution", {**GROWS, "transposed": False})
    assert all(leaves_its_result(name, {}) for name in ("lstm", "gru_h", "scaled_dot_product_attention"))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_pooling_writes_into_place(name: str, channels_last: bool) -> None:
    compute, geometry = POOLS[name]
    x = torch.rand(2, 3, *(4, 6, 2)[: 2 if name.endswith("2d") else 3])
    if channels_last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    wanted = compute(x, *geometry.values())
    values = {"in0": x, "out0": torch.zeros(wanted.shape)}
    library_call(LibraryStep(library=name, args=("in0",), kwargs=geometry, out="out0"), values)()
    assert torch.equal(values["out0"], wanted)
    if "max" in name and not name.startswith("adaptive"):
        _, places = compute(x, *geometry.values(), return_indices=True)
        values["out1"] = torch.zeros(places.shape, dtype=torch.int64)
        library_call(LibraryStep(library=f"{name}_indices", args=("in0",), kwargs=geometry, out="out1"), values)()
        assert torch.equal(values["out1"], places)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_tensors_are_put_side_by_side_in_any_order(order: torch.memory_format) -> None:
    parts = {f"in{n}": torch.rand(2, n + 1, 4, 5).to(memory_format=torch.channels_last) for n in range(3)}
    out = torch.zeros(2, 6, 4, 5).to(memory_format=order)
    step = LibraryStep(library="cat", args=(), kwargs={"tensors": list(parts), "dim": 1}, out="out0")
    library_call(step, {**parts, "out0": out})()
    assert torch.equal(out, torch.cat(list(parts.values()), 1))
    assert out.is_contiguous(memory_format=order)
    step = step.model_copy(update={"kwargs": {"tensors": ["in0", "in1"], "dim": 1}})
    with pytest.raises(LibraryError, match="shape"):
        library_call(step, {**parts, "out0": torch.zeros(2, 6, 4, 5).to(memory_format=order)})()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_over_one_dimension_is_one_over_planes(groups: int) -> None:
    given = {
        "input": torch.rand(2, 4, 19), "weight": torch.rand(6, 4 // groups, 3), "bias": None, "stride": [2],
        "padding": [3], "dilation": [2], "transposed": False, "output_padding": [0], "groups": groups,
    }  # fmt: skip
    wanted = torch.ops.aten.convolution(**given)
    out = torch.zeros(wanted.shape)
    target, planes = as_planes(out, given)
    flat = torch.ops.aten.convolution(**{**planes, "output_padding": [0, 0]})
    target.copy_(flat)
    torch.testing.assert_close(out, wanted)
    flat_already = {**given, "weight": torch.rand(6, 4, 3, 3)}
    assert as_planes(out, flat_already) == (out, flat_already)


def arguments() -> dict[str, torch.Tensor]:
    given = {"in0": torch.rand(2, 3, 2, 2), "param:w": torch.rand(3, 4, 2, 2), "param:m": torch.rand(64, 5)}
    return given | {"out0": torch.zeros(2, 5), "out1": torch.zeros(2, 4, 4, 4), "out2": torch.zeros(2, 3, 2, 2)}


def test_a_result_is_read_where_it_lies_and_goes_with_its_last_reader() -> None:
    given = arguments()
    results = Results(PLAN)
    steps = results.launches(
        PLAN.steps,
        lambda step, there: library_call(step, {**given, **there}),
        lambda step, there, shape: library_result(step, {**given, **there}, shape),
    )
    bound = Bound([], steps)
    for _ in range(2):
        given["in0"].uniform_()
        bound.enqueue()
        wanted = torch.conv_transpose2d(given["in0"], given["param:w"], stride=2)
        torch.testing.assert_close(given["out0"], wanted.flatten(1) @ given["param:m"])
        torch.testing.assert_close(given["out1"], wanted.cumsum(1))
        torch.testing.assert_close(given["out2"], given["in0"].cumsum(1))
    assert results.held == ()
    steps[0]()
    assert results.held == ("t",)


def test_what_a_library_gives_back_in_another_order_or_hands_through_is_copied() -> None:
    shape = like(Buffer(dtype="float32", shape=(2, 6, 3)))
    x = torch.rand(6, 2, 3)
    padded = LibraryStep(library="constant_pad_nd", args=("in0",), kwargs={"pad": [0, 0, 0, 0]}, out="t")
    turned = library_result(padded, {"in0": x.transpose(0, 1)}, shape)()
    assert torch.equal(turned, x.transpose(0, 1))
    assert turned.stride() == (18, 3, 1)
    matrix = LibraryStep(library="matmul", args=("in0", "in1"), out="t")
    with pytest.raises(LibraryError, match="shape"):
        library_result(matrix, {"in0": x, "in1": torch.rand(3, 4)}, shape)()
    with pytest.raises(LibraryError, match="float64"):
        library_result(padded, {"in0": x.transpose(0, 1).double()}, shape)()


def laid(strides: tuple[int, ...]) -> Buffer:
    return PLAN.buffers["t"].model_copy(update={"strides": strides})


FAULTS = {
    "nobody computes it": ({"steps": PLAN.steps[3:]}, "one library step"),
    "two compute it": ({"steps": (PLAN.steps[0], *PLAN.steps)}, "one library step"),
    "read too early": ({"steps": (PLAN.steps[1], PLAN.steps[0])}, r"read before steps\[1\]"),
    "read by its own step": (
        {"steps": (LibraryStep(library="cumsum", args=("t",), kwargs={"dim": 1}, out="t"),)}, "read before",
    ),
    "a part is written": (
        {"steps": (*PLAN.steps, LibraryStep(library="mm", args=("in0", "in1"), out="flat"))}, "no part",
    ),
    "at load time": (
        {"prepare": (LibraryStep(library="cumsum", args=("t",), kwargs={"dim": 1}, out="t"),)}, "during a run",
    ),
    "with gaps": ({"buffers": {"t": laid((128, 32, 4, 1))}}, "side by side"),
    "a stride too few": ({"buffers": {"t": laid((64, 16, 4))}}, "each dimension"),
    "memory of the launcher's": (
        {"buffers": {**PLAN.buffers, "u": Buffer(dtype="float32", shape=(2, 3), strides=(1, 2))}}, "only a result",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_plan_whose_results_are_not_there_is_refused(name: str) -> None:
    update, message = FAULTS[name]
    plan = PLAN.model_copy(update=update)
    with pytest.raises(UserError, match=message):
        plan_of(plan.model_dump_json(), Path("launch.json"))


def test_a_plan_with_results_is_taken() -> None:
    kernel = KernelStep(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=("flat", "out0"))
    buffers = {"t": laid((64, 1, 16, 4))}
    assert like(buffers["t"]).stride() == (64, 1, 16, 4)
    plan = PLAN.model_copy(update={"steps": (*PLAN.steps, kernel), "buffers": buffers})
    assert plan_of(plan.model_dump_json(), Path("launch.json")) == plan


READER = """
extern "C" __global__ void reader(const float* t, float* y, int first) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * t[first + i];
}
extern "C" __global__ void writer(float* t, int place) {
    if (threadIdx.x == 0) t[place] = 1.0f;
}
"""


def test_kernels_read_a_result_and_nothing_beside_it(tmp_path: Path) -> None:
    """128 numbers lie in it, as many as the output takes."""

    def reading(first: int) -> KernelStep:
        return KernelStep(kernel="reader", grid=(2, 1, 1), block=(64, 1, 1), args=("flat", "out1", {"i32": first}))

    def writing(place: int) -> KernelStep:
        return KernelStep(kernel="writer", grid=(1, 1, 1), block=(32, 1, 1), args=("t", {"i32": place}))

    grown = PLAN.steps[0]
    plans = {
        "right": (grown, reading(0)), "behind": (grown, reading(1)), "before": (reading(0), grown),
        "written behind": (grown, writing(128), reading(0)),
    }  # fmt: skip
    given, failures = arguments(), {}
    with Compiler("sm_90", cache_dir=tmp_path / "cache", jobs=1) as compiler:
        for name, steps in plans.items():
            candidate = Candidate(source=READER, plan=PLAN.model_copy(update={"steps": steps}))
            report = compiler.compile(candidate)
            assert report.ok, report.failure
            result = EmulatorBackend("sm_90").load(report, candidate.plan).launch(given, poison=0xFF)
            failures[name] = result.failure and result.failure.kind
            if name == "right":
                wanted = torch.conv_transpose2d(given["in0"], given["param:w"], stride=2)
                torch.testing.assert_close(given["out1"], 2 * wanted)
    assert failures == {
        "right": None, "behind": "out_of_bounds", "before": "arguments", "written behind": "out_of_bounds",
    }  # fmt: skip


def grown(**more: object) -> LaunchPlan:
    step = LibraryStep(library="convolution", args=("in0", "param:w"), kwargs=GROWS, out="out0")
    return LaunchPlan(steps=(step, *more.pop("steps", ())), **more)


def test_an_output_is_left_where_a_library_has_put_it() -> None:
    given = {"in0": torch.rand(2, 3, 2, 2), "param:w": torch.rand(3, 4, 2, 2), "out0": torch.zeros(2, 4, 4, 4)}
    plan = grown()
    left = LeftOutputs(left_outputs(plan), given)
    bound = Bound([], [left.binding(library_call)(step, {}) for step in plan.steps], left.deliver)
    for _ in range(2):
        given["in0"].uniform_()
        given["out0"].zero_()
        wanted = torch.conv_transpose2d(given["in0"], given["param:w"], stride=2)
        bound.call()
        assert not given["out0"].any()
        bound.deliver()
        torch.testing.assert_close(given["out0"], wanted)
    given["in0"].uniform_()
    bound.enqueue()
    torch.testing.assert_close(given["out0"], torch.conv_transpose2d(given["in0"], given["param:w"], stride=2))


def test_only_what_nobody_else_touches_is_left() -> None:
    assert left_outputs(grown()) == {"out0"}
    assert left_outputs(grown(graph=True)) == set()
    reads = LibraryStep(library="cumsum", args=("out0", {"i64": 1}), out="out1")
    assert left_outputs(grown(steps=(reads,))) == set()
    view = View(of="out0", shape=(2, 64), strides=(64, 1))
    assert left_outputs(grown(views={"flat": view})) == set()
    product = LibraryStep(library="mm", args=("in0", "in1"), out="out0")
    assert left_outputs(LaunchPlan(steps=(product,))) == set()
