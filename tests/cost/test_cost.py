"""The cost model: known bounds, and the direction in which each knob moves the estimate."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from warpsmith.kernels.cost import breakdown, floor_us, total_us, with_resources
from warpsmith.kernels.device import model_for
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.records import CompileReport, KernelResources
from warpsmith.kernels.region import Region

H200 = model_for("sm_90")
GB = 1 << 30

COPY = LaunchFeatures(
    kernel="k", blocks=1 << 18, threads=256, registers=32, shared_bytes=0, dram_read=GB, dram_written=GB,
    l2_read=GB, shared_traffic=0, flops=1 << 28, special_ops=0, instructions=1 << 30, bytes_in_flight=16,
    barriers=0,
)  # fmt: skip


def estimate(launch: LaunchFeatures) -> float:
    return total_us(breakdown([launch], H200))


def bound(launch: LaunchFeatures) -> str:
    return breakdown([launch], H200)[0].bound


def test_a_large_copy_runs_near_the_copy_rate() -> None:
    ideal = 1e6 * 2 * GB / H200.dram_bytes_per_s
    assert bound(COPY) == "dram"
    assert ideal < estimate(COPY) < 1.35 * ideal


def test_an_empty_kernel_costs_its_launch() -> None:
    tiny = replace(COPY, blocks=1, dram_read=128, dram_written=128, l2_read=128, flops=32, instructions=640)
    assert H200.launch_us < estimate(tiny) < H200.launch_us + 2.0
    assert bound(tiny) == "launch"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"flops": 10**12}, "fp32"),
        ({"special_ops": 10**11}, "special"),
        ({"instructions": 10**12}, "issue"),
        ({"shared_traffic": 10**12}, "shared"),
        ({"l2_read": 100 * GB}, "l2"),
        ({"blocks": 132, "barriers": 10**6}, "latency"),
    ],
)
def test_the_resource_with_most_work_is_the_bound(change: dict[str, int], expected: str) -> None:
    assert bound(replace(COPY, **change)) == expected
    assert estimate(replace(COPY, **change)) > estimate(COPY)


def test_the_bound_of_a_compute_kernel_is_the_peak() -> None:
    heavy = replace(COPY, flops=10**12, instructions=5 * 10**11)
    assert estimate(heavy) >= 1e6 * 10**12 / H200.fp32_flops


def test_more_bytes_in_flight_never_cost_and_at_first_help_a_lot() -> None:
    times = [estimate(replace(COPY, bytes_in_flight=size)) for size in (4, 8, 16, 32, 64)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.2 * times[-1]
    assert times[3] < 1.1 * times[4]


def test_occupancy_matters_to_a_memory_bound_kernel_with_little_in_flight() -> None:
    starved = replace(COPY, registers=200, bytes_in_flight=4)
    assert estimate(starved) > 1.5 * estimate(replace(COPY, bytes_in_flight=4))


def test_writes_are_not_waited_for() -> None:
    fill = replace(COPY, dram_read=0, dram_written=2 * GB, l2_read=0, bytes_in_flight=0)
    assert estimate(fill) < 1.03 * 1e6 * 2 * GB / H200.dram_bytes_per_s + H200.launch_us
    assert estimate(replace(COPY, bytes_in_flight=4)) > 1.2 * estimate(fill)


def test_a_grid_smaller_than_the_gpu_leaves_sms_idle() -> None:
    heavy = replace(COPY, flops=10**12, blocks=66)
    assert estimate(heavy) > 1.8 * estimate(replace(heavy, blocks=132 * 64))


def test_one_block_cannot_read_faster_than_its_link() -> None:
    alone = replace(COPY, blocks=1, threads=1024, bytes_in_flight=1 << 20)
    assert estimate(alone) > 1e6 * 2 * GB / (64 * H200.clock_hz)


def test_one_block_more_than_a_wave_shows_when_compute_is_the_bound() -> None:
    heavy = replace(COPY, flops=10**11, threads=1024, registers=64)
    assert estimate(replace(heavy, blocks=133)) > 1.7 * estimate(replace(heavy, blocks=132))
    waves = breakdown([replace(heavy, blocks=198)], H200)[0].waves
    assert waves == 1.5


def test_every_launch_of_a_plan_costs() -> None:
    tiny = replace(COPY, blocks=1, dram_read=0, dram_written=0, l2_read=0, flops=0, instructions=0)
    one, two = total_us(breakdown([tiny], H200)), total_us(breakdown([tiny, tiny], H200))
    assert two == pytest.approx(2 * one)


CLUSTERED = replace(
    COPY, blocks=1 << 14, threads=512, cluster=8, sweeps=2, barriers=6, bytes_in_flight=128, instructions=1 << 32
)


def test_blocks_of_a_cluster_overlap_less_than_blocks_on_their_own() -> None:
    one_a_multiprocessor = replace(CLUSTERED, shared_bytes=200 << 10)
    assert estimate(one_a_multiprocessor) > 1.1 * estimate(replace(one_a_multiprocessor, cluster=1))


def test_clusters_that_share_an_sm_fill_each_others_gaps() -> None:
    alone = replace(CLUSTERED, shared_bytes=200 << 10)
    assert breakdown([alone], H200)[0].occupancy.blocks_per_sm == 1
    assert estimate(alone) > 1.1 * estimate(replace(CLUSTERED, shared_bytes=32 << 10))


@pytest.mark.parametrize("field", ["sweeps", "barriers", "spilled_bytes"])
def test_what_a_block_waits_for_alone_never_helps(field: str) -> None:
    times = [estimate(replace(CLUSTERED, **{field: amount})) for amount in (1, 8, 64, 512)]
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_independent_instructions_hide_each_others_latency() -> None:
    serial = replace(COPY, blocks=132, threads=64, instructions=1 << 32, flops=1 << 32, bytes_in_flight=512)
    assert estimate(serial) > 1.5 * estimate(replace(serial, independent=8))


@pytest.mark.parametrize("change", [{"threads": 2048}, {"registers": 300}, {"shared_bytes": 1 << 20}, {"blocks": 0}])
def test_what_cannot_be_launched_is_infinitely_slow(change: dict[str, int]) -> None:
    assert estimate(replace(COPY, **change)) == math.inf
    assert bound(replace(COPY, **change)) == "impossible"


def test_spills_and_true_registers_count_once_the_kernel_is_compiled() -> None:
    def report(registers: int, spills: int) -> CompileReport:
        found = KernelResources(registers=registers, spill_stores=spills, spill_loads=spills, shared_bytes=4096)
        return CompileReport(
            ok=True, arch="sm_90", nvrtc_version="13.0", cached=False, seconds=0.1, resources={"k": found}
        )

    (plain,) = with_resources([COPY], report(40, 0))
    assert (plain.registers, plain.shared_bytes, plain.shared_traffic) == (40, 4096, 0)
    (spilling,) = with_resources([COPY], report(40, 4000))
    assert estimate(spilling) > estimate(plain)
    assert with_resources([replace(COPY, kernel="other")], report(99, 9)) == (replace(COPY, kernel="other"),)


def test_the_floor_is_the_larger_of_traffic_and_arithmetic() -> None:
    def region(flops: int, moved: int) -> Region:
        return Region((), (), (), (), (), (), flops=flops, floor_bytes=moved)

    assert floor_us(region(0, 4_300_000_000_000), H200) == pytest.approx(1e6)
    assert floor_us(region(67_000_000_000_000, 8), H200) == pytest.approx(1e6)


def test_no_estimate_is_below_the_floor() -> None:
    for blocks in (1, 131, 132, 1000, 1 << 18):
        for held in (4, 64, 4096):
            launch = replace(COPY, blocks=blocks, bytes_in_flight=held)
            assert estimate(launch) >= 1e6 * 2 * GB / H200.dram_bytes_per_s
