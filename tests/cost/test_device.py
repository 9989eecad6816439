"""Device models: consistent, found by name or architecture, and built from what a driver reports."""

from __future__ import annotations

import pytest

from warpsmith.kernels.device import DEVICES, DeviceModel, fp32_lanes, model_for, model_from_properties
from warpsmith.kernels.errors import UserError


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_models_are_consistent(device: DeviceModel) -> None:
    assert device.source
    assert device.shared_per_block + device.shared_reserved_per_block <= device.shared_per_sm
    assert device.threads_per_sm % 32 == 0
    assert device.dram_bytes_per_s < device.l2_bytes_per_s
    assert device.fp32_flops == pytest.approx(2 * fp32_lanes(device.arch) * device.sms * device.clock_hz, rel=0.02)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H200", 67.0),
        ("NVIDIA H100 80GB HBM3", 67.0),
        ("NVIDIA A100-SXM4-80GB", 19.5),
        ("NVIDIA GeForce RTX 4090", 82.6),
        ("NVIDIA GeForce RTX 3090", 35.6),
        ("NVIDIA L40S", 91.6),
        ("Tesla T4", 8.1),
    ],
)
def test_peak_rates_agree_with_the_datasheets(name: str, teraflops: float) -> None:
    (device,) = (model for model in DEVICES if model.name == name)
    assert device.fp32_flops / 1e12 == pytest.approx(teraflops, rel=0.02)


def test_a_device_is_found_by_name_before_architecture() -> None:
    assert model_for("sm_90").name == "NVIDIA H200"
    assert model_for("sm_90", "NVIDIA H100 80GB HBM3").dram_bytes_per_s < model_for("sm_90").dram_bytes_per_s
    assert model_for("sm_90", "some other card").name == "NVIDIA H200"
    assert model_for("sm_90a").arch == "sm_90"
    assert model_for("sm_100f").arch == "sm_100"


@pytest.mark.parametrize("arch", ["sm_13", "90", "", "gfx942"])
def test_an_unknown_architecture_lists_the_known_ones(arch: str) -> None:
    with pytest.raises(UserError, match=r"sm_75.*sm_80.*sm_90.*sm_100"):
        model_for(arch)


H200 = {
    "name": "NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132, "clockRate": 1_980_000,
    "memoryClockRate": 3_201_000, "memoryBusWidth": 6144, "l2CacheSize": 62_914_560,
    "sharedMemPerMultiprocessor": 233_472, "sharedMemPerBlockOptin": 232_448, "regsPerMultiprocessor": 65_536,
    "maxThreadsPerMultiProcessor": 2048, "maxBlocksPerMultiProcessor": 32, "reservedSharedMemPerBlock": 1024,
}  # fmt: skip


def test_a_known_device_keeps_its_measured_rates() -> None:
    assert model_from_properties(H200) == model_for("sm_90")


def test_rates_of_an_unknown_device_follow_from_clocks_and_widths() -> None:
    device = model_from_properties(H200 | {"name": "NVIDIA H999"})
    assert device.dram_bytes_per_s == pytest.approx(4.4e12, rel=0.03)
    assert device.fp32_flops == pytest.approx(6.7e13, rel=0.01)
    assert device.l2_bytes_per_s == pytest.approx(1.0e13, rel=0.02)
    assert "driver" in device.source


def test_part_of_a_known_device_scales_with_its_sms() -> None:
    few = {"name": "NVIDIA H200 MIG 1g.18gb", "major": 9, "minor": 0, "multiProcessorCount": 16}
    device = model_from_properties(few)
    assert device.sms == 16
    assert device.dram_bytes_per_s == pytest.approx(model_for("sm_90").dram_bytes_per_s * 16 / 132)


def test_a_future_architecture_starts_from_the_nearest_older_one() -> None:
    reported = {"name": "new", "major": 12, "minor": 0, "multiProcessorCount": 170, "clockRate": 2_407_000}
    device = model_from_properties(reported | {"maxThreadsPerMultiProcessor": 1536})
    assert device.arch == "sm_120"
    assert device.threads_per_sm == 1536
    assert device.fp32_flops == pytest.approx(2 * 128 * 170 * 2.407e9)


@pytest.mark.parametrize("key", ["name", "major", "minor", "multiProcessorCount"])
def test_what_identifies_a_device_must_be_there(key: str) -> None:
    with pytest.raises(KeyError, match=key):
        model_from_properties({name: value for name, value in H200.items() if name != key})
