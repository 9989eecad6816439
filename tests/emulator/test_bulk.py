"""mbarriers and bulk copies on the emulator: right results, and each way of using them wrongly."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

SOURCE = r"""
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void k(const float* x, float* y, int bytes) {
  __shared__ __align__(16) float stage[2][64];
  __shared__ unsigned long long full[2];
  const int t = threadIdx.x;
  if (t == 0)
    for (int s = 0; s < 2; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(full + s)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  OPENED
  const auto request = [&](int turn) {
    if (t != 0 || turn >= 5) return;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
      :: "r"(at(full + turn % 2)), "r"(EXPECTED) : "memory");
    const float* const from = x + (blockIdx.x * 5 + turn) * 64 + SHIFT;
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(at(stage[turn % 2])), "l"(from), "r"(bytes), "r"(at(full + turn % 2)) : "memory");
  };
  request(0);
  request(1);
  float sum = 0.f;
  for (int turn = 0; turn < 5; ++turn) {
    int done;
    if (WAITS) do {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(at(full + turn % 2)), "r"(turn / 2 % 2) : "memory");
    } while (!done);
    sum += stage[turn % 2][63 - t];
    READ
    request(turn + 2);
  }
  y[blockIdx.x * 64 + t] = sum;
}"""
RIGHT = {"OPENED": "__syncthreads();", "READ": "__syncthreads();", "EXPECTED": "bytes", "SHIFT": "0", "WAITS": "true"}


def launch(bytes_: int = 256, **changed: str):
    source = SOURCE
    for name, text in (RIGHT | changed).items():
        source = source.replace(name, text)
    x = aligned(np.arange(3 * 5 * 64 + 4), np.float32)
    y = aligned(np.zeros(3 * 64), np.float32)
    return run(cuda(source), "k", (3,), (64,), [x, y, bytes_], outs=[1]), x, y


def test_rows_arrive_stage_by_stage():
    result, x, y = launch()
    good(result)
    rows = x[: 3 * 5 * 64].reshape(3, 5, 64)
    assert np.array_equal(y.reshape(3, 64), rows.sum(1)[:, ::-1])


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"OPENED": ""}, "race"),
        ({"READ": ""}, "race"),
        ({"WAITS": "false"}, "uninitialized"),
        ({"EXPECTED": "bytes + 16"}, "hang"),
        ({"EXPECTED": "bytes - 16"}, "hang"),
        ({"SHIFT": "1"}, "misaligned"),
    ],
    ids=str,
)
def test_wrong_use_is_found(changed, kind):
    result, _, _ = launch(**changed)
    assert result.failure is not None
    assert result.failure.kind == kind


def test_sizes_and_bounds_are_held_to():
    assert launch(200)[0].failure.kind == "misaligned"
    assert launch(1024)[0].failure.kind == "out_of_bounds"


CLUSTERS = r"""extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* y, int n) {
  const int turns = blockIdx.x < 2 ? n : 0;
  for (int turn = 0; turn < turns; ++turn)
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
  y[blockIdx.x * 32 + threadIdx.x] = turns;
}"""


def test_clusters_may_wait_at_different_barriers():
    y = aligned(np.zeros(4 * 32), np.int32)
    good(run(cuda(CLUSTERS), "k", (4,), (32,), [y, 3], outs=[0], cluster=(2, 1, 1)))
    assert y.tolist() == [3] * 64 + [0] * 64
