"""Blocks that wait for other blocks: right ones end in every order, and those that can never end are found."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

from warpsmith.sandbox.emulator.grid import Disorder
from warpsmith.sandbox.emulator.launch import Run

_TICKET = "__shared__ int own; if (!threadIdx.x) own = atomicAdd(tickets, 1); __syncthreads(); int b = own;"
_INDEX = "int b = blockIdx.x;"
_SCAN = """extern "C" __global__ void k(const float* x, float* y, float* sums, int* flags, int* tickets) {
  __shared__ float before;
  WHO
  if (threadIdx.x == 0) {
    float sum = 0;
    if (b) {
      while (POLL == 0) { }
      __threadfence();
      sum = *(volatile float*)&sums[b - 1];
    }
    before = sum;
    sums[b] = sum + x[b];
    __threadfence();
    PUBLISH;
  }
  __syncthreads();
  if (threadIdx.x == 1) y[b] = before + x[b];
}"""


def scan(text: str, blocks: int, seed: int | None, step_limit: int = 100_000) -> tuple[Run, np.ndarray]:
    """Launch a chain of blocks, each of which adds to the sum of the one before; what came of it and the sums."""
    x, y = aligned(np.arange(blocks), np.float32), aligned(np.zeros(blocks), np.float32)
    sums, flags, tickets = aligned(y), aligned(np.zeros(blocks), np.int32), aligned([0], np.int32)
    disorder = None if seed is None else Disorder(seed, mirrored=seed % 2 == 1)
    result = run(
        text, "k", (blocks,), (64,), [x, y, sums, flags, tickets], outs=(1,), scratch=(2, 3, 4), disorder=disorder,
        step_limit=step_limit,
    )  # fmt: skip
    return result, y


@pytest.mark.parametrize("who", [_INDEX, _TICKET])
@pytest.mark.parametrize(
    ("poll", "publish"),
    [
        ("*(volatile int*)&flags[b - 1]", "*(volatile int*)&flags[b] = 1"),
        ("atomicAdd(&flags[b - 1], 0)", "atomicExch(&flags[b], 1)"),
    ],
)
def test_chains_of_waiting_blocks_end_in_every_order(who: str, poll: str, publish: str) -> None:
    text = cuda(_SCAN.replace("WHO", who).replace("POLL", poll).replace("PUBLISH", publish))
    for blocks, seed in [(40, None), *((count, seed) for seed in range(6) for count in (2, 3, 17))]:
        result, y = scan(text, blocks, seed)
        good(result)
        assert y.tolist() == np.cumsum(np.arange(blocks)).tolist()


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_chain_that_is_never_started_is_soon_found(seed: int | None) -> None:
    text = cuda(
        _SCAN.replace("WHO", _INDEX)
        .replace("if (b)", "")
        .replace("POLL", "*(volatile int*)&flags[(b + gridDim.x - 1) % gridDim.x]")
        .replace("PUBLISH", "flags[b] = 1")
        .replace("sums[b - 1]", "sums[b]")
    )
    result, _ = scan(text, 9, seed, step_limit=2000)
    assert result.failure is not None
    assert (result.failure.kind, "circles" in result.failure.message) == ("hang", True)


def test_the_barrier_of_the_whole_grid() -> None:
    text = cuda(
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
        'extern "C" __global__ void k(const float* x, float* y, float* part) {\n'
        "  int b = blockIdx.x, t = threadIdx.x;\n  if (t == 0) part[b] = x[b];\n  cg::this_grid().sync();\n"
        "  float sum = 0;\n  for (int j = 0; j < gridDim.x; j++) sum += part[j];\n"
        "  cg::this_grid().sync();\n  if (t == 0) part[b] = 0;\n  if (t == 1) y[b] = sum;\n}"
    )
    for seed in (None, 1, 2):
        x, y, part = (aligned(values, np.float32) for values in (np.arange(9), np.zeros(9), np.zeros(9)))
        disorder = None if seed is None else Disorder(seed, mirrored=seed % 2 == 1)
        good(run(text, "k", (9,), (32,), [x, y, part], outs=(1, 2), cooperative=True, disorder=disorder))
        assert y.tolist() == [36.0] * 9
    alone = run(text, "k", (9,), (32,), [x, y, part], outs=(1, 2)).failure
    assert alone is not None


@pytest.mark.parametrize(
    ("load", "clean"), [("y[63 - t]", True), ("__ldg(&y[63 - t])", False), ("__ldg(&x[63 - t])", True)]
)
def test_read_only_loads_of_what_the_launch_writes_are_races(load: str, clean: bool) -> None:
    body = "(const float* x, float* y, float* z) { int t = threadIdx.x; y[t] = x[t]; __syncthreads(); z[t] = LOAD; }"
    text = cuda('extern "C" __global__ void k' + body.replace("LOAD", load))
    x, y, z = (aligned(np.arange(64), np.float32) for _ in range(3))
    failure = run(text, "k", (1,), (64,), [x, y, z], outs=(1, 2)).failure
    assert failure is None if clean else failure is not None and failure.kind == "race"


_PEERS = """#include <cooperative_groups.h>
extern "C" __global__ void k(const float* x, float* y) {
  auto all = cooperative_groups::this_cluster();
  __shared__ float own, got;
  int b = blockIdx.x, peer = all.block_rank() ^ 1;
  if (threadIdx.x == 0) own = x[b];
  START
  if (WHO && threadIdx.x == 0) { ACCESS }
  END
}"""
_READ, _WRITE = "y[b] = *all.map_shared_rank(&own, peer);", "*all.map_shared_rank(&got, peer) = x[b];"


@pytest.mark.parametrize(
    ("start", "end", "access", "clean"),
    [
        ("all.sync();", "all.sync();", _READ, True),
        ("all.sync();", "all.sync(); y[b] = got;", _WRITE, True),
        ("all.sync();", "", _READ, False),
        ("", "all.sync(); y[b] = got;", _WRITE, False),
    ],
)
@pytest.mark.parametrize("who", ["peer", "!peer"])
def test_shared_memory_of_a_peer_must_exist(start: str, end: str, access: str, clean: bool, who: str) -> None:
    end = end.replace("y[b] = got;", "if (!(WHO) && threadIdx.x == 0) y[b] = got;")
    text = cuda(
        _PEERS.replace("START", start).replace("END", end).replace("WHO", who).replace("ACCESS", access), "compute_90"
    )
    x, y = aligned(np.arange(4), np.float32), aligned(np.zeros(4), np.float32)
    failure = run(text, "k", (4,), (32,), [x, y], outs=(1,), cluster=(2, 1, 1)).failure
    assert failure is None if clean else failure is not None and failure.kind == "race", failure


def test_blocks_find_themselves_all_over_the_device() -> None:
    text = cuda('extern "C" __global__ void k(int* y) { asm volatile("mov.u32 %0, %%smid;" : "=r"(y[blockIdx.x])); }')
    y = aligned(np.zeros(132), np.int32)
    good(run(text, "k", (132,), (1,), [y], outs=(0,)))
    assert sorted(y) == list(range(132))
    assert {place // 44 for place in y[:4]} == {0, 1, 2}


@pytest.mark.parametrize("seed", [None, 1])
def test_a_lock_that_nobody_frees_is_soon_found(seed: int | None) -> None:
    text = cuda(
        'extern "C" __global__ void k(int* lock, int* y) { if (threadIdx.x == 0) {'
        " while (atomicCAS(lock, 0, 1)) { } y[0] += 1; } }"
    )
    disorder = None if seed is None else Disorder(seed, mirrored=seed % 2 == 1)
    lock, y = aligned([0], np.int32), aligned([0], np.int32)
    failure = run(text, "k", (8,), (64,), [lock, y], scratch=(0, 1), disorder=disorder, step_limit=3000).failure
    assert failure is not None
    assert (failure.kind, "circles" in failure.message) == ("hang", True)
