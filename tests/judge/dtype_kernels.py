"""Hand-written kernels for problems in 16-bit floats, integers, booleans and float64, right ones and wrong ones.

`T` is the 16-bit type, `F` reads it as float, `R` rounds a float to it, `C` rounds through the next lower precision.
"""

HALF = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef __half T;
__device__ float F(T x) { return __half2float(x); }
__device__ T R(float x) { return __float2half(x); }
__device__ float C(float x) { return __bfloat162float(__float2bfloat16(x)); }
"""
BFLOAT = """
#include <cuda_bf16.h>
typedef __nv_bfloat16 T;
__device__ float F(T x) { return __bfloat162float(x); }
__device__ T R(float x) { return __float2bfloat16(x); }
__device__ float C(float x) { return __int_as_float((__float_as_int(x) + 0x80000) & 0xFFF00000); }
"""
ROW = "int r = threadIdx.x + blockIdx.x * blockDim.x;"

SIXTEEN = {
    "softmax": (
        "torch.softmax(x, 1)",
        "[torch.randn(64, 40).to(T)]",
        (
            "const T* x, T* y",
            ROW + "if (r < 64) { float m = -3e38f, s = 0; for (int i = 0; i < 40; ++i) m = fmaxf(m, F(x[r * 40 + i]));"
            "for (int i = 0; i < 40; ++i) s += EXP; for (int i = 0; i < 40; ++i) y[r * 40 + i] = R(EXP / s); }",
        ),
        {"EXP": "expf(F(x[r * 40 + i]) - m)"},
        {
            "lower precision": {"EXP": "C(expf(F(x[r * 40 + i]) - m))"},
            "no shift": {"EXP": "expf(F(x[r * 40 + i]))"},
        },
    ),
    "matmul": (
        "x @ y",
        "[torch.rand(8, 64).to(T), torch.rand(64, 8).to(T)]",
        (
            "const T* x, const T* y, T* z",
            ROW + "if (r < 64) { float s = 0; for (int k = 0; k < DEPTH; ++k)"
            "s = KEEP(s + F(x[r / 8 * 64 + k]) * F(y[k * 8 + r % 8])); z[r] = R(s); }",
        ),
        {"DEPTH": "64", "KEEP": ""},
        {"accumulator in 16 bits": {"KEEP": "F(R", "; z[r]": "); z[r]"}, "last term dropped": {"DEPTH": "63"}},
    ),
    "gelu": (
        "F.gelu(x)",
        "[torch.randn(4, 128).to(T)]",
        ("const T* x, T* y", ROW + "if (r < 512) { float v = F(x[r]); y[r] = R(GELU); }"),
        {"GELU": "0.5f * v * erfcf(-v * 0.70710678f)"},
        {
            "tanh approximation": {"GELU": "0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)))"},
            "lower precision": {"GELU": "C(0.5f * v * erfcf(-v * 0.70710678f))"},
        },
    ),
    "norm with weights": (
        "F.layer_norm(x, (32,), self.w, self.b)",
        "[torch.randn(6, 32).to(T)]",
        (
            "const T* x, const T* w, const T* b, T* y",
            ROW + "if (r < 6) { float m = 0, v = 0; for (int i = 0; i < 32; ++i) m += F(x[r * 32 + i]); m /= 32;"
            "for (int i = 0; i < 32; ++i) { float d = F(x[r * 32 + i]) - m; v += d * d; } v = rsqrtf(v / 32 + 1e-5f);"
            "for (int i = 0; i < 32; ++i) y[r * 32 + i] = R((F(x[r * 32 + i]) - m) * v * F(w[i]) + BIAS); }",
        ),
        {"BIAS": "F(b[i])"},
        {"bias left out": {"BIAS": "0"}},
    ),
    "fused chain": (
        "torch.relu(x * 1.7 + y) * x",
        "[torch.randn(300).to(T), torch.randn(300).to(T)]",
        (
            "const T* x, const T* y, T* z",
            ROW + "if (r < 300) { float v = F(x[r]) * 1.7f + F(y[r]); z[r] = R(KEEP(fmaxf(v, 0.0f)) * F(x[r])); }",
        ),
        {"KEEP": ""},
        {"lower precision": {"KEEP": "C"}, "no relu": {"fmaxf(v, 0.0f)": "v"}},
    ),
    "row sums": (
        "x.sum(1)",
        "[torch.randn(70, 60).to(T)]",
        (
            "const T* x, T* y",
            ROW + "if (r < 70) { float s = 0; for (int i = 0; i < COUNT; ++i) s += F(x[r * 60 + i]); y[r] = R(s); }",
        ),
        {"COUNT": "60"},
        {
            "last left out": {"COUNT": "59"},
            "sum in 16 bits": {"s += F(x[r * 60 + i])": "s = F(R(s + F(x[r * 60 + i])))"},
        },
    ),
    "argmax": (
        "x.argmax(1)",
        "[torch.randn(20, 24).to(T)]",
        (
            "const T* x, long long* y",
            ROW + "if (r < 20) { int best = 0; for (int i = 1; i < COUNT; ++i)"
            "if (F(x[r * 24 + i]) > F(x[r * 24 + best])) best = i; y[r] = best; }",
        ),
        {"COUNT": "24"},
        {"last left out": {"COUNT": "23"}, "out of range": {"y[r] = best": "y[r] = best + 24"}},
    ),
    "comparison": (
        "x > y",
        "[torch.randn(300).to(T), torch.randn(300).to(T)]",
        ("const T* x, const T* y, bool* z", ROW + "if (r < 300) z[r] = F(x[r]) OP F(y[r]);"),
        {"OP": ">"},
        {"turned round": {"OP": "<"}, "always": {"F(x[r]) OP F(y[r])": "true"}},
    ),
    "widened output": (
        "x.float() * 3",
        "[torch.randn(300).to(T)]",
        ("const T* x, float* y", ROW + "if (r < 300) y[r] = KEEP(F(x[r]) * 3);"),
        {"KEEP": ""},
        {"rounded to 16 bits": {"KEEP": "F(R", "* 3)": "* 3))"}},
    ),
    "narrowed output": (
        "(x * y).to(T)",
        "[torch.randn(300), torch.randn(300)]",
        ("const float* x, const float* y, T* z", ROW + "if (r < 300) z[r] = R(KEEP(x[r] * y[r]));"),
        {"KEEP": ""},
        {"lower precision": {"KEEP": "C"}},
    ),
}
"""Name -> forward, inputs, (parameters, body), the right parts, wrong parts by name."""

OTHERS = {
    "embedding": (
        "self.w[y]",
        "[torch.randint(0, 32, (20,))]",
        ("const long long* y, const float* w, float* z", ROW + "if (r < 20) z[r] = w[INDEX];"),
        {"INDEX": "y[r]"},
        {"always the same": {"INDEX": "5"}, "one beside": {"INDEX": "(y[r] + 1) % 32"}},
    ),
    "fixed indices": (
        "x[y]",
        "[torch.randn(50), torch.tensor([3, 1, 4, 1, 5, 9, 2, 6] * 4)]",
        ("const float* x, const long long* y, float* z", ROW + "if (r < 32) z[r] = x[INDEX];"),
        {"INDEX": "y[r]"},
        {"learnt by heart": {"INDEX": "(0x62951413 >> 4 * (r % 8)) & 15"}},
    ),
    "integers": (
        "x * 3 + y",
        "[torch.randint(-999, 999, (300,), dtype=torch.int32), torch.randint(0, 9, (300,), dtype=torch.int32)]",
        ("const int* x, const int* y, int* z", ROW + "if (r < 300) z[r] = x[r] * 3 + y[r] OFF;"),
        {"OFF": ""},
        {"one off at one": {"OFF": "+ (r == 77)"}, "one off everywhere": {"OFF": "+ 1"}},
    ),
    "labels": (
        "F.cross_entropy(x, y, reduction='none')",
        "[torch.randn(40, 10), torch.randint(0, 10, (40,))]",
        (
            "const float* x, const long long* y, float* z",
            ROW + "if (r < 40) { float s = 0, m = x[r * 10]; for (int i = 1; i < 10; ++i) m = fmaxf(m, x[r * 10 + i]);"
            "for (int i = 0; i < 10; ++i) s += expf(x[r * 10 + i] - m); z[r] = logf(s) + m - x[r * 10 + LABEL]; }",
        ),
        {"LABEL": "y[r]"},
        {"label ignored": {"LABEL": "0"}},
    ),
    "mask": (
        "torch.where(y, x, -x)",
        "[torch.randn(300), torch.arange(300) % 3 == 0]",
        ("const float* x, const bool* y, float* z", ROW + "if (r < 300) z[r] = MASK ? x[r] : -x[r];"),
        {"MASK": "y[r]"},
        {"learnt by heart": {"MASK": "r % 3 == 0"}},
    ),
    "float64": (
        "x @ y",
        "[torch.randn(8, 40, dtype=torch.float64), torch.randn(40, 8, dtype=torch.float64)]",
        (
            "const double* x, const double* y, double* z",
            ROW + "if (r < 64) { ACC s = 0; for (int k = 0; k < 40; ++k) s += x[r / 8 * 40 + k] * y[k * 8 + r % 8];"
            "z[r] = s; }",
        ),
        {"ACC": "double"},
        {"sum in float32": {"ACC": "float"}},
    ),
    "integer sums": (
        "x.cumsum(1)",
        "[torch.randint(-50, 50, (20, 30))]",
        (
            "const long long* x, long long* y",
            ROW + "if (r < 20) { long long s = 0; for (int i = 0; i < 30; ++i) { ORDER } }",
        ),
        {"ORDER": "s += x[r * 30 + i]; y[r * 30 + i] = s;"},
        {"exclusive": {"ORDER": "y[r * 30 + i] = s; s += x[r * 30 + i];"}},
    ),
    "bytes": (
        "x.float() / 255",
        "[torch.randint(0, 256, (300,), dtype=torch.uint8)]",
        ("const unsigned char* x, float* y", ROW + "if (r < 300) y[r] = x[r] SCALE;"),
        {"SCALE": "/ 255.0f"},
        {"by 256": {"SCALE": "/ 256.0f"}},
    ),
    "two outputs": (
        "x.max(1)",
        "[torch.randn(30, 40)]",
        (
            "const float* x, float* y, long long* z",
            ROW + "if (r < 30) { int best = 0; for (int i = 1; i < 40; ++i)"
            "if (x[r * 40 + i] COMPARE x[r * 40 + best]) best = i; y[r] = x[r * 40 + best]; z[r] = best SHIFT; }",
        ),
        {"COMPARE": ">", "SHIFT": ""},
        {"second output beside": {"SHIFT": "^ 1"}, "smallest": {"COMPARE": "<"}},
    ),
    "last of ties": (
        "x.max(1)",
        "[torch.randn(30, 40).round()]",
        (
            "const float* x, float* y, long long* z",
            ROW + "if (r < 30) { int best = 0; for (int i = 1; i < 40; ++i)"
            "if (x[r * 40 + i] >= x[r * 40 + best]) best = i; y[r] = x[r * 40 + best]; z[r] = PLACE; }",
        ),
        {"PLACE": "best"},
        {"row among ties": {"PLACE": "best + 40 * r"}},
    ),
    "bags": (
        "F.embedding_bag(x, self.m, y, mode='sum')",
        "[torch.randint(0, 12, (24,)), torch.tensor([0, 3, 3, 10, 20])]",
        (
            "const long long* x, const long long* y, const float* m, float* z",
            ROW + "if (r < 40) { float s = 0; long long end = r / 8 < 4 ? y[r / 8 + 1] : 24;"
            "for (long long i = BEGIN; i < end; ++i) s += m[x[i] * 8 + r % 8]; z[r] = s; }",
        ),
        {"BEGIN": "y[r / 8]"},
        {"offsets learnt by heart": {"BEGIN": "r < 8 ? 0 : r < 24 ? 3 : r < 32 ? 10 : 20"}},
    ),
}


def source(head: str, parameters: str, body: str, parts: dict[str, str]) -> str:
    """A kernel `k` with its parts filled in."""
    for name, text in parts.items():
        body = body.replace(name, text)
    return f'{head}\nextern "C" __global__ void k({parameters}) {{ {body} }}\n'
