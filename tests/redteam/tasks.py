"""The problems that the attacks are aimed at, small enough for the emulator, each with an honest candidate."""

from __future__ import annotations

from typing import Any

from redteam.arena import Folder, Task, launch, step

TAIL = "\ndef get_init_inputs():\n    return []\n"


def model(body: str, inputs: str, arguments: str = "x", constants: str = "") -> str:
    """A problem around one expression."""
    return (
        f"{constants}\nclass Model(nn.Module):\n    def forward(self, {arguments}):\n        return {body}\n"
        f"def get_inputs():\n    return [{inputs}]\n{TAIL}"
    )


# Elementwise: one thread an element.

AFFINE_N = 1500
AFFINE_SOURCE = """
extern "C" __global__ void affine(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 3.0f + 1.0f;
}
"""


def over_affine(kernel: str = "affine", *args: Any, grid: int = 12, block: int = 128, **more: Any) -> dict[str, Any]:
    """A launch over the elements of `AFFINE`."""
    return step(kernel, args or ["in0", "out0", {"i32": AFFINE_N}], grid=grid, block=block, **more)


AFFINE = Task(
    "affine",
    model("x * 3 + 1", f"torch.randn({AFFINE_N})"),
    Folder(AFFINE_SOURCE, launch(over_affine())),
)


def affine(body: str, before: str = "", *, kernel_args: str = "const float* x, float* y, int n") -> str:
    """A kernel over `AFFINE` with `i` at hand; `before` stands at file scope."""
    return (
        f'{before}\nextern "C" __global__ void affine({kernel_args}) {{\n'
        f"    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    {body}\n}}\n"
    )


# Softmax over rows: one warp a row.

SOFTMAX_ROWS, SOFTMAX_DIM = 8, 300
WARP = """
__device__ __forceinline__ float warp_sum(float v) {
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}
"""


def softmax(exponential: str = "expf(in[i] - m)", *, ends: str = "n", before: str = "", after: str = "") -> str:
    """A softmax kernel whose parts can be replaced."""
    return (
        WARP
        + f"""
{before}
extern "C" __global__ void softmax(const float* x, float* y, int n) {{
    const float* in = x + (long long)blockIdx.x * n;
    float* out = y + (long long)blockIdx.x * n;
    float m = -3.4e38f, s = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) m = fmaxf(m, in[i]);
    m = warp_max(m);
    for (int i = threadIdx.x; i < {ends}; i += 32) s += {exponential};
    s = warp_sum(s);
    for (int i = threadIdx.x; i < n; i += 32) out[i] = {exponential} / s;
    {after}
}}
"""
    )


def over_rows(kernel: str, rows: int, *args: Any, block: int = 32, **more: Any) -> dict[str, Any]:
    """A launch of one block a row."""
    return step(kernel, args, grid=rows, block=block, **more)


def over_softmax(**more: Any) -> dict[str, Any]:
    """A launch over the rows of `SOFTMAX`."""
    return over_rows("softmax", SOFTMAX_ROWS, "in0", "out0", {"i32": SOFTMAX_DIM}, **more)


SOFTMAX = Task(
    "softmax",
    model("torch.softmax(x, dim=1)", f"torch.rand({SOFTMAX_ROWS}, {SOFTMAX_DIM})"),
    Folder(softmax(), launch(over_softmax())),
)

WIDE = 16384
WIDE_SOFTMAX = Task(
    "wide_softmax",
    model("torch.softmax(x, dim=1)", f"torch.rand(1, {WIDE})"),
    Folder(
        softmax().replace("+= 32", "+= 32"),
        launch(over_rows("softmax", 1, "in0", "out0", {"i32": WIDE})),
    ),
)

# Matrix product: one thread an element of the result.

M, N, K = 8, 32, 1024
MATMUL_SOURCE = """
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n, int k) {
    const int row = blockIdx.x, col = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum = fmaf(a[row * k + i], b[i * n + col], sum);
    c[row * n + col] = sum;
}
"""


def matmul(term: str = "fmaf(a[row * k + i], b[i * n + col], sum)", *, ends: str = "k", before: str = "") -> str:
    """A product whose term can be replaced."""
    source = MATMUL_SOURCE.replace("fmaf(a[row * k + i], b[i * n + col], sum)", term)
    return before + source.replace("i < k", f"i < {ends}")


def over_matmul(kernel: str = "matmul", *args: Any, **more: Any) -> dict[str, Any]:
    """A launch over the rows of `MATMUL`."""
    return step(kernel, args or ["in0", "in1", "out0", {"i32": N}, {"i32": K}], grid=M, block=N, **more)


MATMUL = Task(
    "matmul",
    model("a @ b", f"torch.rand({M}, {K}), torch.rand({K}, {N})", "a, b"),
    Folder(MATMUL_SOURCE, launch(over_matmul())),
)

# A module with weights.

LINEAR_ROWS, LINEAR_IN, LINEAR_OUT = 8, 64, 32
LINEAR_TEXT = f"""
class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.inner = nn.Linear(inside, outside)
    def forward(self, x):
        return torch.relu(self.inner(x))
def get_inputs():
    return [torch.rand({LINEAR_ROWS}, {LINEAR_IN})]
def get_init_inputs():
    return [{LINEAR_IN}, {LINEAR_OUT}]
"""
LINEAR_SOURCE = """
extern "C" __global__ void linear(const float* x, const float* w, const float* b, float* y, int k) {
    const int row = blockIdx.x, col = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum = fmaf(x[row * k + i], w[col * k + i], sum);
    y[row * blockDim.x + col] = fmaxf(sum + b[col], 0.0f);
}
"""
LINEAR_ARGS = ["in0", "param:inner.weight", "param:inner.bias", "out0", {"i32": LINEAR_IN}]


def over_linear(kernel: str = "linear", *args: Any, **more: Any) -> dict[str, Any]:
    """A launch over the rows of `LINEAR`."""
    return step(kernel, args or LINEAR_ARGS, grid=LINEAR_ROWS, block=LINEAR_OUT, **more)


LINEAR = Task("linear", LINEAR_TEXT, Folder(LINEAR_SOURCE, launch(over_linear())))

# Layer norm with a small epsilon that matters for small inputs, and the variance alone.

NORM_ROWS, NORM_DIM = 8, 96
NORM_SOURCE = (
    WARP
    + """
extern "C" __global__ void layer_norm(const float* x, float* y, int n) {
    const float* in = x + blockIdx.x * n;
    float s = 0.0f, q = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) s += in[i];
    const float mean = warp_sum(s) / n;
    for (int i = threadIdx.x; i < n; i += 32) q += (in[i] - mean) * (in[i] - mean);
    const float scale = 1.0f / sqrtf(warp_sum(q) / n + 1e-5f);
    for (int i = threadIdx.x; i < n; i += 32) y[blockIdx.x * n + i] = (in[i] - mean) * scale;
}
"""
)


def over_norm(**more: Any) -> dict[str, Any]:
    """A launch over the rows of `NORM`."""
    return over_rows("layer_norm", NORM_ROWS, "in0", "out0", {"i32": NORM_DIM}, **more)


NORM = Task(
    "norm",
    model(f"F.layer_norm(x, ({NORM_DIM},))", f"torch.rand({NORM_ROWS}, {NORM_DIM})"),
    Folder(NORM_SOURCE, launch(over_norm())),
)

# Indices, with ties.

ARGMAX_ROWS, ARGMAX_DIM = 12, 64
ARGMAX_SOURCE = """
extern "C" __global__ void argmax(const float* x, long long* y, int n) {
    const float* in = x + threadIdx.x * n;
    int best = 0;
    for (int i = 1; i < n; ++i) if (in[i] > in[best]) best = i;
    y[threadIdx.x] = best;
}
"""


def over_argmax(**more: Any) -> dict[str, Any]:
    """A launch over the rows of `ARGMAX`."""
    return step("argmax", ["in0", "out0", {"i32": ARGMAX_DIM}], block=ARGMAX_ROWS, **more)


ARGMAX = Task(
    "argmax",
    model("torch.argmax(x, dim=1)", f"torch.rand({ARGMAX_ROWS}, {ARGMAX_DIM})"),
    Folder(ARGMAX_SOURCE, launch(over_argmax())),
)

# Two outputs.

PAIR_ROWS, PAIR_DIM = 16, 40
PAIR_SOURCE = """
extern "C" __global__ void pair(const float* x, float* y, float* s, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) {
        const float v = fmaxf(x[threadIdx.x * n + i], 0.0f);
        y[threadIdx.x * n + i] = v;
        sum += v;
    }
    s[threadIdx.x] = sum;
}
"""


def over_pair(**more: Any) -> dict[str, Any]:
    """A launch over the rows of `PAIR`."""
    return step("pair", ["in0", "out0", "out1", {"i32": PAIR_DIM}], block=PAIR_ROWS, **more)


PAIR = Task(
    "pair",
    model("torch.relu(x), torch.relu(x).sum(1)", f"torch.randn({PAIR_ROWS}, {PAIR_DIM})"),
    Folder(PAIR_SOURCE, launch(over_pair())),
)

# NaN and infinities in the expected result.

ROOT_N = 512
ROOT_SOURCE = """
extern "C" __global__ void root(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrtf(x[i]);
}
"""


def over_root() -> dict[str, Any]:
    """A launch over the elements of `ROOT`."""
    return step("root", ["in0", "out0", {"i32": ROOT_N}], grid=4, block=128)


ROOT = Task(
    "root",
    model("torch.sqrt(x)", f"torch.randn({ROOT_N})"),
    Folder(ROOT_SOURCE, launch(over_root())),
)

# Gelu, exact.

GELU_SOURCE = """
extern "C" __global__ void gelu(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 0.5f * (1.0f + erff(x[i] * 0.70710678f));
}
"""


def over_gelu() -> dict[str, Any]:
    """A launch over the elements of `GELU`."""
    return step("gelu", ["in0", "out0", {"i32": 1024}], grid=8, block=128)


GELU = Task("gelu", model("F.gelu(x)", "torch.randn(1024)"), Folder(GELU_SOURCE, launch(over_gelu())))
