"""Occupancy against values of NVIDIA's occupancy calculator and the programming guide's limits."""

from __future__ import annotations

import pytest

from warpsmith.kernels.device import model_for
from warpsmith.kernels.occupancy import occupancy, waves


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "limiter"),
    [
        # Full occupancy takes at most 32 registers a thread on SMs of 2048 threads, 40 on SMs of 1536.
        ("sm_90", 256, 32, 0, 8, "threads"),
        ("sm_80", 256, 32, 0, 8, "threads"),
        ("sm_86", 256, 40, 0, 6, "threads"),
        ("sm_80", 256, 40, 0, 6, "registers"),
        ("sm_90", 256, 33, 0, 6, "registers"),
        ("sm_90", 1024, 64, 0, 1, "registers"),
        ("sm_90", 1024, 65, 0, 0, "registers"),
        ("sm_90", 128, 255, 0, 2, "registers"),
        ("sm_90", 128, 128, 0, 4, "registers"),
        ("sm_90", 96, 128, 0, 5, "registers"),
        ("sm_86", 1024, 32, 0, 1, "threads"),
        ("sm_75", 1024, 32, 0, 1, "threads"),
        # Small blocks: the number of blocks an SM tracks.
        ("sm_90", 32, 16, 0, 32, "blocks"),
        ("sm_86", 32, 16, 0, 16, "blocks"),
        ("sm_89", 32, 16, 0, 24, "blocks"),
        # Shared memory, with the 1 KiB that the driver takes of each block from sm_80 on.
        ("sm_80", 128, 32, 48 << 10, 3, "shared"),
        ("sm_90", 128, 32, 227 << 10, 1, "shared"),
        ("sm_90", 128, 32, 113 << 10, 2, "shared"),
        ("sm_90", 128, 32, (113 << 10) + 1, 1, "shared"),
        ("sm_90", 128, 32, (227 << 10) + 1, 0, "shared"),
        ("sm_86", 128, 32, 99 << 10, 1, "shared"),
        ("sm_75", 128, 32, 32 << 10, 2, "shared"),
        ("sm_75", 128, 32, 64 << 10, 1, "shared"),
        # What cannot be launched at all.
        ("sm_90", 1056, 16, 0, 0, "threads"),
        ("sm_90", 0, 16, 0, 0, "threads"),
        ("sm_90", 64, 256, 0, 0, "registers"),
    ],
)
def test_blocks_per_sm_and_what_limits_them(
    arch: str, threads: int, registers: int, shared: int, blocks: int, limiter: str
) -> None:
    found = occupancy(model_for(arch), threads=threads, registers=registers, shared_bytes=shared)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.active_warps == blocks * -(-threads // 32)
    assert 0.0 <= found.fraction <= 1.0


def test_nothing_gets_better_by_taking_more_of_anything() -> None:
    device = model_for("sm_90")
    for threads in (32, 96, 256, 1024):
        blocks = [occupancy(device, threads=threads, registers=count).blocks_per_sm for count in range(16, 256)]
        assert blocks == sorted(blocks, reverse=True)
        shared = [
            occupancy(device, threads=threads, registers=16, shared_bytes=size).blocks_per_sm
            for size in range(0, 233_000, 997)
        ]
        assert shared == sorted(shared, reverse=True)


def test_waves_count_how_often_the_gpu_is_filled() -> None:
    device = model_for("sm_90")
    held = occupancy(device, threads=256, registers=32)
    assert waves(device, held, 132 * 8) == 1.0
    assert waves(device, held, 132 * 8 + 66 * 8) == 1.5
    with pytest.raises(ValueError, match="registers"):
        waves(device, occupancy(device, threads=1024, registers=128), 1)
