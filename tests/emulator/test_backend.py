"""The emulator behind the backend seam: plans of kernels and library calls on torch tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from emulator.kit import cuda

from warpsmith.kernels.records import (
    Buffer,
    CompiledModule,
    CompileReport,
    KernelResources,
    KernelStep,
    LaunchPlan,
    LibraryStep,
)
from warpsmith.sandbox.backend import LaunchResult
from warpsmith.sandbox.emulator.backend import EmulatorBackend, LoadedEmulator

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * by;
}
extern "C" __global__ void total(const float* x, float* sum, int n) {
  float v = 0;
  for (int i = threadIdx.x; i < n; i += 32) v += x[i];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  if (threadIdx.x == 0) atomicAdd(sum, v);
}
extern "C" __global__ void __launch_bounds__(256) big() { extern __shared__ float s[]; s[threadIdx.x] = 0; }
extern "C" __global__ void shape(double* y, long long n, unsigned u, double d) { y[0] = n + u + d; }
"""


def loaded(
    tmp_path: Path, plan: LaunchPlan, source: str = SOURCE, *, resources: dict[str, KernelResources] | None = None,
    arch: str = "sm_90", **options: Any,
) -> LoadedEmulator:  # fmt: skip
    path = tmp_path / "kernel.ptx"
    path.write_text(cuda(source, arch.replace("sm", "compute")))
    report = CompileReport(
        ok=True, arch=arch, nvrtc_version="13.0", cached=False, seconds=0.0, resources=resources or {},
        modules=(CompiledModule(cubin_path="", ptx_path=str(path)),),
    )  # fmt: skip
    return EmulatorBackend(arch, **options).load(report, plan)


def step(kernel: str, args: tuple[Any, ...], **more: Any) -> KernelStep:
    return KernelStep(kernel=kernel, args=args, **{"grid": (4, 1, 1), "block": (32, 1, 1), **more})


def ok(result: LaunchResult) -> LaunchResult:
    assert result.failure is None, result.failure
    assert result.refused is None
    return result


def kind(result: LaunchResult) -> str | None:
    assert result.failure is not None
    assert result.failure.stage == "launch"
    return result.failure.kind


def test_a_plan_of_kernels_scratch_and_library_steps(tmp_path: Path) -> None:
    plan = LaunchPlan(
        buffers={
            "product": Buffer(dtype="float32", shape=(10, 10)),
            "sum": Buffer(dtype="float32", shape=(1,), init="zero"),
        },
        steps=(
            LibraryStep(library="mm", args=("in0", "param:w"), out="product"),
            step("total", ("product", "sum", {"i32": 100}), grid=(1, 1, 1)),
            step("scale", ("product", "out0", {"i32": 100}, {"f32": 0.5})),
            step("scale", ("sum", "out1", {"i32": 1}, "in1")),
        ),
    )  # fmt: skip
    run = loaded(tmp_path, plan)
    x, w = torch.randn(10, 10), torch.randn(10, 10)
    for poison in (0xCB, 0x11):
        out0, out1 = torch.empty(10, 10), torch.empty(1)
        result = ok(run.launch({"in0": x, "in1": 3.0, "param:w": w, "out0": out0, "out1": out1}, poison=poison))
        assert torch.equal(out0, (x @ w) * 0.5)
        assert torch.allclose(out1, 3 * (x @ w).sum(), atol=1e-4)
    assert result.counters is not None
    assert result.counters.source == "emulated"
    assert set(result.counters.kernels) == {"total", "scale"}
    assert result.counters.kernels["scale"]["global_load_requests"] == 4 + 1


def test_views_share_memory_and_are_bounded_by_what_they_span(tmp_path: Path) -> None:
    plan = LaunchPlan(steps=(step("scale", ("in0", "out0", "in1", {"f32": 2.0})),))
    run = loaded(tmp_path, plan)
    whole, out = torch.arange(200.0), torch.zeros(300)
    view = whole[50:150]
    ok(run.launch({"in0": view, "out0": out[100:200], "in1": 100}, poison=1))
    assert torch.equal(out[100:200], view * 2)
    assert not out[:100].any()
    assert not out[200:].any()
    result = run.launch({"in0": whole[50:149], "out0": out[100:200], "in1": 100}, poison=1)
    assert kind(result) == "out_of_bounds"
    assert result.failure is not None
    assert "in0" in result.failure.message
    assert "source line 4" in result.failure.message


def test_poisoned_scratch_counts_as_never_written(tmp_path: Path) -> None:
    buffers = {"tmp": Buffer(dtype="float32", shape=(128,))}
    reads = LaunchPlan(buffers=buffers, steps=(step("scale", ("tmp", "out0", {"i32": 128}, {"f32": 1.0})),))
    result = loaded(tmp_path, reads).launch({"out0": torch.zeros(128)}, poison=0xCB)
    assert kind(result) == "uninitialized"
    unchecked = loaded(tmp_path, reads, check_uninitialized=False)
    out = torch.zeros(128)
    ok(unchecked.launch({"out0": out}, poison=0))
    writes = LaunchPlan(
        buffers=buffers,
        steps=(
            step("scale", ("in0", "tmp", {"i32": 128}, {"f32": 2.0})),
            step("scale", ("tmp", "out0", {"i32": 128}, {"f32": 1.0})),
        ),
    )
    x = torch.randn(128)
    ok(loaded(tmp_path, writes).launch({"in0": x, "out0": out}, poison=0xCB))
    assert torch.equal(out, 2 * x)


def test_only_a_range_of_blocks(tmp_path: Path) -> None:
    plan = LaunchPlan(steps=(step("scale", ("in0", "out0", {"i32": 128}, {"f32": 1.0})),))
    x, out = torch.ones(128), torch.zeros(128)
    ok(loaded(tmp_path, plan).launch({"in0": x, "out0": out}, poison=0, blocks=range(1, 3)))
    assert out.reshape(4, 32).sum(1).tolist() == [0, 32, 32, 0]


def test_scalars_take_the_width_that_the_kernel_declares(tmp_path: Path) -> None:
    plan = LaunchPlan(
        steps=(step("shape", ("out0", {"i64": 2**40}, {"u32": 7}, {"f64": 0.5}), grid=(1, 1, 1), block=(1, 1, 1)),)
    )
    out = torch.zeros(1, dtype=torch.float64)
    ok(loaded(tmp_path, plan).launch({"out0": out}, poison=0))
    assert out.item() == 2**40 + 7.5


SCALE = ("in0", "out0", {"i32": 128}, {"f32": 1.0})
REFUSED: list[tuple[KernelStep, str]] = [
    (step("scale", SCALE, block=(1025, 1, 1)), "too_many_threads"),
    (step("scale", SCALE, block=(8, 8, 65)), "too_many_threads"),
    (step("scale", SCALE, block=(0, 1, 1)), "too_many_threads"),
    (step("big", (), block=(512, 1, 1), shared_bytes=4096), "too_many_threads"),
    (step("scale", SCALE, grid=(1, 65536, 1)), "grid"), (step("scale", SCALE, grid=(0, 1, 1)), "grid"),
    (step("scale", SCALE, grid=(4225, 1, 1), cooperative=True), "cooperative"),
    (step("scale", SCALE, cluster=(3, 1, 1)), "cluster"),
    (step("scale", SCALE, grid=(32, 1, 1), cluster=(32, 1, 1)), "cluster"),
    (step("big", (), shared_bytes=232449), "shared_memory"), (step("nothing", ()), "no_entry"),
    (step("scale", ("in0", "out0", {"i32": 128})), "arguments"),
    (step("scale", ("in0", "out0", {"i64": 128}, {"f32": 1.0})), "arguments"),
    (step("scale", ("in0", "nobody", {"i32": 128}, {"f32": 1.0})), "arguments"),
    (step("scale", ("in0", "out0", "out0", {"f32": 1.0})), "arguments"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "expected"), REFUSED)
def test_launch_limits(tmp_path: Path, wrong: KernelStep, expected: str) -> None:
    result = loaded(tmp_path, LaunchPlan(steps=(wrong,))).launch(
        {"in0": torch.ones(128), "out0": torch.zeros(128)}, poison=0
    )
    assert kind(result) == expected


def test_register_limit_and_largest_shared_memory(tmp_path: Path) -> None:
    plan = LaunchPlan(steps=(step("big", (), block=(256, 1, 1), shared_bytes=232448),))
    resources = {"big": KernelResources(registers=255, spill_stores=0, spill_loads=0, shared_bytes=0)}
    ok(loaded(tmp_path, plan, resources=resources).launch({}, poison=0))
    assert kind(loaded(tmp_path, plan, arch="sm_89").launch({}, poison=0)) == "shared_memory"
    wide = LaunchPlan(steps=(step("scale", SCALE, block=(512, 1, 1)),))
    heavy = {"scale": KernelResources(registers=129, spill_stores=0, spill_loads=0, shared_bytes=0)}
    assert kind(loaded(tmp_path, wide, resources=heavy).launch({}, poison=0)) == "registers"


def test_a_library_step_outside_the_list_is_a_failure(tmp_path: Path) -> None:
    plan = LaunchPlan(steps=(LibraryStep(library="softmax", args=("in0",), out="out0"),))
    result = loaded(tmp_path, plan).launch({"in0": torch.ones(4), "out0": torch.zeros(4)}, poison=0)
    assert kind(result) == "arguments"


def test_what_cannot_be_emulated_is_named(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void k(float* x) { asm volatile("fence.proxy.alias;"); x[0] = 1; }'
    plan = LaunchPlan(steps=(step("k", ("out0",)),))
    result = loaded(tmp_path, plan, source).launch({"out0": torch.zeros(1)}, poison=0)
    assert result.failure is None
    assert result.refused is not None
    assert result.refused.startswith("cannot be emulated: fence.proxy.alias at line ")


def test_module_variables_live_as_long_as_the_loaded_candidate(tmp_path: Path) -> None:
    source = '__device__ int calls; extern "C" __global__ void k(int* x) { x[0] = ++calls; }'
    plan = LaunchPlan(steps=(step("k", ("out0",), grid=(1, 1, 1), block=(1, 1, 1)),))
    run = loaded(tmp_path, plan, source)
    seen = []
    for _ in range(3):
        out = torch.zeros(1, dtype=torch.int32)
        ok(run.launch({"out0": out}, poison=0))
        seen.append(out.item())
    assert seen == [1, 2, 3]


def test_races_can_be_left_unchecked(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = blockIdx.x; }'
    plan = LaunchPlan(steps=(step("k", ("out0",)),))
    assert kind(loaded(tmp_path, plan, source).launch({"out0": torch.zeros(32)}, poison=0)) == "race"
    result = loaded(tmp_path, plan, source, check_races=False).launch({"out0": torch.zeros(32)}, poison=0)
    assert result.failure is None


def test_a_failed_bound_check_touches_nothing(tmp_path: Path) -> None:
    plan = LaunchPlan(steps=(step("scale", ("in0", "out0", {"i32": 129}, {"f32": 1.0}), grid=(5, 1, 1)),))
    x, out = torch.ones(129), torch.zeros(128)
    assert kind(loaded(tmp_path, plan).launch({"in0": x, "out0": out}, poison=0)) == "out_of_bounds"
    assert not out.any()
