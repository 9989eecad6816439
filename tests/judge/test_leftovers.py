"""Which memory nobody owns, read off the allocator's snapshot."""

from warpsmith.sandbox.cuda.leftovers import free_spans
from warpsmith.sandbox.cuda.variables import variable_names
from warpsmith.sandbox.nvrtc import load_nvrtc

COUNTING = """
__device__ float calls = 1.0f;
static __device__ float hidden;
__device__ const float table[2] = {5.0f, 7.0f};
__constant__ float fixed[2];
extern "C" __global__ void count(float* y, int n) {
    static int inside;
    y[0] = calls; y[1] = hidden; y[2] = table[n] + fixed[n] + inside;
    calls += 1.0f; hidden += 1.0f; inside += 1;
}
"""


def segment(address, *blocks):
    return {"address": address, "blocks": [{"size": size, "state": state} for size, state in blocks]}


def test_neighbours_are_joined_within_a_segment_only():
    used, free = "active_allocated", "inactive"
    snapshot = [
        segment(0x1000, (0x200, used), (0x200, free), (0x400, free), (0x800, used)),
        segment(0x2000, (0x1000, free)),
        segment(0x3000, (0x1000, free)),
        segment(0x4000, (0x200, "active_pending_free"), (0x200, free)),
    ]
    assert free_spans(snapshot) == [(0x1200, 0x600), (0x2000, 0x1000), (0x3000, 0x1000), (0x4200, 0x200)]


def test_nothing_is_free_where_everything_is_used():
    assert free_spans([segment(0x1000, (0x1000, "active_allocated"))]) == []


def test_variables_in_global_memory_are_read_off_the_cubin():
    cubin = load_nvrtc().compile(COUNTING, options=("--gpu-architecture=sm_90",)).cubin
    found = variable_names(cubin)
    assert all(any(name in one for one in found) for name in ("calls", "hidden", "inside"))
    assert not any("fixed" in one for one in found)
    plain = load_nvrtc().compile('extern "C" __global__ void k(float* y) { *y = 1; }', options=()).cubin
    assert variable_names(plain) == variable_names(b"no cubin") == ()
