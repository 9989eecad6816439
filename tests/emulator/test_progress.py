"""Blocks that wait for other blocks: right ones end in every order, and those that can never end are found."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

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
    chance = None if seed is None else np.random.default_rng(seed)
    result = run(
        text, "k", (blocks,), (64,), [x, y, sums, flags, tickets], outs=(1,), scratch=(2, 3, 4), chance=chance,
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
