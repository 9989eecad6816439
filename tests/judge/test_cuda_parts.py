"""The parts of the CUDA backend that need no GPU: argument packing, launch structures, locks, statistics."""

import asyncio
import contextlib
import ctypes
import gc
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from warpsmith.kernels.errors import SandboxTimeout, UserError
from warpsmith.kernels.records import Buffer, KernelStep, LaunchPlan, LibraryStep, View
from warpsmith.sandbox.backend import with_views
from warpsmith.sandbox.cuda.arguments import ArgumentError, Parameter, entry_parameters, pack, parameter_array
from warpsmith.sandbox.cuda.bound import LaunchRefused
from warpsmith.sandbox.cuda.driver import LaunchAttribute, LaunchConfig, launch_config
from warpsmith.sandbox.cuda.kernels import Entry, Kernels
from warpsmith.sandbox.cuda.library import LibraryError, library_call
from warpsmith.sandbox.cuda.lock import exclusive, turn
from warpsmith.tools.lease import Lease, seats
from warpsmith.tools.measurement.statistics import half_width, quantiles, speedup

PTX = """
.version 8.8
.target sm_90
.visible .entry first(
	.param .u64 .ptr .align 1 first_param_0,
	.param .u32 first_param_1,
	.param .f32 first_param_2,
	.param .u64 first_param_3,
	.param .f64 first_param_4,
	.param .align 8 .b8 first_param_5[24]
)
{ ret; }
.visible .entry none()
{ ret; }
"""


def test_parameters_as_ptx_declares_them():
    found = entry_parameters(PTX)
    kinds = [(p.kind, p.size) for p in found["first"]]
    assert kinds == [("u", 8), ("u", 4), ("f", 4), ("u", 8), ("f", 8), ("b", 24)]
    assert found["none"] == ()


def test_arguments_take_exactly_the_declared_width():
    parameters = entry_parameters(PTX)["first"][:5]
    x = torch.zeros(4)
    packed = pack(["x", {"i32": -3}, "scale", {"i64": 1 << 40}, {"f64": 0.5}], parameters, {"x": x, "scale": 2})
    assert [type(value) for value in packed] == [np.uint64, np.int32, np.float32, np.int64, np.float64]
    assert packed[0] == x.data_ptr()
    assert packed[2] == 2.0
    addresses, cells = parameter_array(packed)
    assert ctypes.c_int32.from_address(addresses[1]).value == -3
    assert ctypes.c_double.from_address(addresses[4]).value == 0.5
    assert len(cells) == 5


@pytest.mark.parametrize(
    ("argument", "parameter", "message"),
    [
        ({"i32": 1}, Parameter("u", 8), r"gives i32, the kernel takes \.u64"),
        ({"f32": 1.0}, Parameter("u", 4), r"gives f32"),
        ({"i32": 1}, Parameter("f", 4), r"gives i32"),
        ({"i32": 1 << 31}, Parameter("u", 4), "does not fit"),
        ({"i32": 1.5}, Parameter("u", 4), "no integer"),
        ({"i31": 1}, Parameter("u", 4), "no scalar type"),
        ("x", Parameter("u", 4), "is a tensor"),
        ("y", Parameter("u", 8), "nothing is called 'y'"),
        ("half", Parameter("u", 4), "no integer"),
    ],
)
def test_arguments_that_do_not_fit(argument, parameter, message):
    with pytest.raises(ArgumentError, match=message):
        pack([argument], [parameter], {"x": torch.zeros(1), "half": 0.5})


def test_too_few_arguments_never_reach_the_driver():
    with pytest.raises(ArgumentError, match="takes 2 arguments, the plan gives 1"):
        pack([{"i32": 1}], [Parameter("u", 4)] * 2, {})


def test_launch_structures_have_the_layout_of_cuda_h():
    assert ctypes.sizeof(LaunchAttribute) == 72
    assert LaunchAttribute.value.offset == 8
    assert ctypes.sizeof(LaunchConfig) == 56
    assert (LaunchConfig.shared_bytes.offset, LaunchConfig.stream.offset) == (24, 32)
    assert (LaunchConfig.attributes.offset, LaunchConfig.attribute_count.offset) == (40, 48)
    config = launch_config(
        grid=(1 << 20, 2, 3), block=(256, 1, 1), cluster=(4, 1, 1), shared_bytes=99, stream=1 << 40, cooperative=True
    )
    gc.collect()
    assert (config.grid.x, config.grid.z, config.shared_bytes, config.stream) == (1 << 20, 3, 99, 1 << 40)
    assert config.attribute_count == 2
    assert (config.attributes[0].id, config.attributes[0].value.cluster.x) == (4, 4)
    assert (config.attributes[1].id, config.attributes[1].value.cooperative) == (2, 1)
    one = (1, 1, 1)
    plain = launch_config(grid=one, block=one, cluster=one, shared_bytes=0, stream=0, cooperative=False)
    assert plain.attribute_count == 0


def test_library_steps_come_from_the_list_and_write_outputs_only():
    values = {"in0": torch.rand(3, 4), "in1": torch.rand(4, 5), "out0": torch.zeros(3, 5)}

    def call(name, arguments, out, keywords, values):
        return library_call(LibraryStep(library=name, args=arguments, out=out, kwargs=keywords), values)

    call("mm", ["in0", "in1"], "out0", {}, values)()
    assert torch.equal(values["out0"], values["in0"] @ values["in1"])
    bias = {**values, "param:b": torch.rand(5)}
    call("addmm", ["param:b", "in0", "in1"], "out0", {"alpha": 2.0}, bias)()
    assert torch.allclose(values["out0"], bias["param:b"] + 2 * values["in0"] @ values["in1"])
    wrong = [("softmax", "out0", {}), ("mm", "in0", {}), ("mm", "out0", {"out": 1}), ("mm", "o", {})]
    for name, out, keywords in wrong:
        with pytest.raises(LibraryError):
            call(name, ["in0", "in1"], out, keywords, values)
    with pytest.raises(LibraryError, match="nothing is called"):
        call("mm", ["in0", "in7"], "out0", {}, values)


def test_a_convolution_takes_its_geometry_by_keyword_and_needs_no_bias():
    values = {"in0": torch.rand(2, 3, 9, 9), "param:w": torch.rand(4, 3, 3, 3), "tmp": torch.zeros(2, 4, 5, 5)}
    geometry = {
        "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0],
        "groups": 1,
    }  # fmt: skip
    step = LibraryStep(library="convolution", args=("in0", "param:w"), out="tmp", kwargs=geometry)
    library_call(step, values)()
    assert torch.equal(values["tmp"], torch.nn.functional.conv2d(values["in0"], values["param:w"], None, 2, 1))
    with pytest.raises(LibraryError, match="needs stride"):
        library_call(step.model_copy(update={"kwargs": {}}), values)
    small = {**values, "tmp": torch.zeros(2, 4, 5, 4)}
    with pytest.raises(LibraryError, match="shape"):
        library_call(step, small)()


def test_library_steps_take_lists_of_tensors_and_views():
    plan = LaunchPlan(
        buffers={"tmp": Buffer(dtype="float32", shape=(24,))},
        views={
            "left": View(of="tmp", shape=(3, 4), strides=(8, 1)),
            "right": View(of="tmp", shape=(3, 4), strides=(8, 1), offset=4),
        },
        steps=(LibraryStep(library="cat", args=(), kwargs={"tensors": ["left", "right"], "dim": 0}, out="out0"),),
    )  # fmt: skip
    values = with_views(plan, {"tmp": torch.arange(24.0), "out0": torch.zeros(6, 4)})
    library_call(plan.steps[0], values)()
    whole = torch.arange(24.0).view(3, 8)
    assert torch.equal(values["out0"], torch.cat([whole[:, :4], whole[:, 4:]]))
    beyond = plan.model_copy(update={"views": {"v": View(of="tmp", shape=(3, 4), strides=(8, 1), offset=5)}})
    with pytest.raises(ValueError, match="beyond"):
        with_views(beyond, {"tmp": torch.zeros(24)})


def test_one_process_at_a_time_holds_a_device(tmp_path):
    script = (
        "import sys; from pathlib import Path; from warpsmith.sandbox.cuda.lock import exclusive\n"
        "with exclusive('ab', folder=Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(SandboxTimeout), exclusive("ab", timeout_s=0.05, folder=tmp_path):
            pass
        with exclusive("cd", timeout_s=0.05, folder=tmp_path):
            pass
        with pytest.raises(SandboxTimeout), exclusive("ab", shared=True, timeout_s=0.05, folder=tmp_path):
            pass
        other.kill()
        other.wait()
    with exclusive("ab", timeout_s=5, folder=tmp_path):
        pass


def test_those_that_time_nothing_share_a_device_until_somebody_waits_for_it_alone(tmp_path):
    with exclusive("ab", shared=True, folder=tmp_path):
        with exclusive("ab", shared=True, timeout_s=0.05, folder=tmp_path):
            pass
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(lambda: exclusive("ab", timeout_s=0.4, folder=tmp_path).__enter__())
            time.sleep(0.1)
            with pytest.raises(SandboxTimeout), exclusive("ab", shared=True, timeout_s=0.05, folder=tmp_path):
                pass
            with pytest.raises(SandboxTimeout):
                waiting.result()
    with exclusive("ab", timeout_s=0.05, folder=tmp_path):
        pass


def test_who_has_a_device_may_take_a_turn_again(tmp_path):
    def waits(shared):
        with pytest.raises(SandboxTimeout), exclusive("ab", shared=shared, timeout_s=0.05, folder=tmp_path):
            pass

    with turn("ab", folder=tmp_path):
        with turn("ab", folder=tmp_path), turn("ab", shared=True, folder=tmp_path):
            waits(True)
        waits(True)
    with turn("ab", shared=True, folder=tmp_path), turn("ab", shared=True, folder=tmp_path):
        with pytest.raises(RuntimeError, match="no turn alone"), turn("ab", folder=tmp_path):
            pass
        waits(False)
        with exclusive("ab", shared=True, timeout_s=0.05, folder=tmp_path):
            pass
    with exclusive("ab", timeout_s=0.05, folder=tmp_path):
        pass


def test_a_suite_s_runs_share_a_gpu_and_others_have_it_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPSMITH_LOCKS", str(tmp_path))
    monkeypatch.setenv("WARPSMITH_GPU_SEATS", "2")
    first, second, third, whole = (Lease("ab") for _ in range(4))

    async def taken(lease, *, seats=1):
        monkeypatch.setenv("WARPSMITH_GPU_TAKES", str(seats))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lease.take(None), 0.15)
            return True
        return False

    async def go():
        assert await taken(first)
        assert not await taken(third, seats=2)
        # What waits for two has let go of the one that is free.
        assert await taken(second)
        assert not await taken(third)
        monkeypatch.delenv("WARPSMITH_GPU_SEATS")
        assert not await taken(whole)
        for one in (first, second):
            one.give_back()
        assert await taken(whole)
        monkeypatch.setenv("WARPSMITH_GPU_SEATS", "2")
        assert not await taken(first)
        whole.give_back()
        # No more than there are.
        assert await taken(first, seats=5)
        assert not await taken(second)

    asyncio.run(go())
    monkeypatch.setenv("WARPSMITH_GPU_SEATS", "none")
    with pytest.raises(UserError, match="WARPSMITH_GPU_SEATS=none"):
        seats()


def test_statistics_of_paired_samples():
    noise = np.random.default_rng(1).normal(1, 0.02, (2, 60))
    own, other = 10 * noise[0], 15 * noise[1]
    found = speedup(other, own)
    assert found == speedup(other, own)
    assert found.low < 1.5 < found.high
    assert half_width(found) < 0.02
    null = speedup(own, own)
    assert (null.value, null.low, null.high) == (1.0, 1.0, 1.0)
    spread = quantiles(range(101))
    assert (spread.p10, spread.p50, spread.p90, spread.n) == (10, 50, 90, 101)
    with pytest.raises(ValueError, match="no pairs"):
        speedup([], own)


class Recorder:
    """A driver that keeps what it is told to launch."""

    def __init__(self):
        self.launched = []

    def set_function(self, function, attribute, value):
        self.launched.append((function, attribute, value))

    def launch(self, function, config, addresses):
        self.launched.append(function)


def test_each_kernel_of_a_plan_comes_from_its_own_module():
    def module(name):
        return SimpleNamespace(get_function=lambda kernel: SimpleNamespace(ptr=f"{name}:{kernel}"))

    entries = {"a": Entry(module("first"), (Parameter("b", 8),)), "b": Entry(module("second"), ())}
    steps = tuple(
        KernelStep(kernel=name, grid=(1, 1, 1), block=(32, 1, 1), args=args, cooperative=True)
        for name, args in (("b", ()), ("a", ("in0",)), ("b", ()))
    )
    driver = Recorder()
    kernels = Kernels(driver, SimpleNamespace(cuda_stream=0), entries, LaunchPlan(steps=steps))
    for step in steps:
        kernels.launcher(step, {"in0": torch.zeros(1)})()
    assert driver.launched == ["second:b", "first:a", "second:b"]
    with pytest.raises(LaunchRefused, match="no kernel 'c'"):
        kernels.launcher(steps[0].model_copy(update={"kernel": "c"}), {})
