"""Problems and free-form kernels for these tests: a softmax that families cover, a running maximum that none covers."""

from pathlib import Path

from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan

SOFTMAX = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(6, 96)]


def get_init_inputs():
    return []
"""
RUNNING_MAX = SOFTMAX.replace("torch.softmax(x, dim=1)", "torch.cummax(x, dim=1)[0]")

SOFTMAX_TEXT = """extern "C" __global__ void softmax_rows(const float* in, float* out, int n) {
    __shared__ float part[32];
    const float* row = in + (long)blockIdx.x * n;
    int lane = threadIdx.x;
    float top = -3.0e38f;
    for (int i = lane; i < n; i += 32) top = fmaxf(top, row[i]);
    for (int s = 16; s > 0; s >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, s));
    float sum = 0.0f;
    for (int i = lane; i < n; i += 32) sum += expf(row[i] - top);
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    part[lane] = sum;
    for (int i = lane; i < n; i += 32) out[(long)blockIdx.x * n + i] = expf(row[i] - top) / part[lane];
}
"""
RUNNING_TEXT = """extern "C" __global__ void running_max(const float* in, float* out, int n) {
    const float* row = in + (long)blockIdx.x * n;
    double top = row[0];
    for (int i = 0; i < n; ++i) {
        if (row[i] > top) top = row[i];
        out[(long)blockIdx.x * n + i] = (float)top;
    }
}
"""
WAITING = """    volatile const float* waited = in;
    while (waited[0] > -1.0e30f) {
    }
    double top"""


def plan(kernel: str, *, threads: int = 32, args: tuple[str | dict[str, int | float], ...] = ()) -> LaunchPlan:
    """A launch of 6 blocks."""
    step = KernelStep(kernel=kernel, grid=(6, 1, 1), block=(threads, 1, 1), args=args or ("in0", "out0", {"i32": 96}))
    return LaunchPlan(steps=(step,))


def softmax() -> Candidate:
    """Right."""
    return Candidate(source=SOFTMAX_TEXT, plan=plan("softmax_rows"))


def running_max() -> Candidate:
    """Right."""
    return Candidate(source=RUNNING_TEXT, plan=plan("running_max", threads=1))


def broken(what: str) -> Candidate:
    """The running maximum with one fault: `compile`, `launch`, `wrong`, `hang` or `plan`."""
    good = running_max()
    if what == "compile":
        return good.model_copy(update={"source": RUNNING_TEXT.replace("double top", "doubel top")})
    if what == "launch":
        return good.model_copy(
            update={"source": RUNNING_TEXT.replace("i < n;", "i <= n;").replace("row[i]", "row[i + n]")}
        )
    if what == "wrong":
        return good.model_copy(update={"source": RUNNING_TEXT.replace("(float)top", "(float)top + 1.0f")})
    if what == "hang":
        return good.model_copy(update={"source": RUNNING_TEXT.replace("    double top", WAITING)})
    scratch = {"tmp": Buffer(dtype="float32", shape=(4,))}
    step = good.plan.steps[0].model_copy(update={"args": ("in0", "out7", {"i32": 96})})
    return good.model_copy(update={"plan": LaunchPlan(buffers=scratch, steps=(step,))})


def problem(folder: Path, text: str = SOFTMAX, name: str = "problem.py") -> Path:
    """A problem file."""
    path = folder / name
    path.write_text(text)
    return path
