"""Device sources that break one rule each, and neighbours that break none."""

from __future__ import annotations

HEAD = 'extern "C" __global__ void k(const float* x, float* y, int n)'


def kernel(body: str, before: str = "") -> str:
    """A kernel of two pointers and an int, with text before it."""
    return f"{before}\n{HEAD} {{\n{body}\n}}\n"


def asm(text: str, result: str = '"+r"(n)', inputs: str = "") -> str:
    """One inline assembly statement with n as %0, its value stored."""
    return f'asm volatile("{text}" : {result} : {inputs}); y[0] = n;'


TABLE = "__device__ const float t[400] = {1, 2, 3};"
STATE = "__device__ int state;"
LEAVE = "ret; }\\n"
ENTER = "\\n.visible .entry q() { .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;"

REFUSED: dict[str, tuple[str, str]] = {
    # a module's variables
    "counter": ("global_state", kernel("y[0] = state++;", STATE)),
    "counter with an initial value": ("global_state", kernel("y[0] = state++;", "__device__ int state = 1;")),
    "static local": ("global_state", kernel("static int state; y[0] = state++;")),
    "atomic": ("global_state", kernel("y[0] = atomicAdd(&state, 1);", STATE)),
    "pointer chosen at run time": ("global_state", kernel("int* p = n ? &state : (int*)y; *p = 3;", STATE)),
    "table of pointers": ("global_state", kernel("*p[n] = 3;", STATE + "__device__ int* p[2] = {&state, &state};")),
    "address stored": ("global_state", kernel("*(unsigned long long*)y = (unsigned long long)&state;", STATE)),
    "address through shared memory": (
        "global_state",
        kernel("__shared__ int* p; p = &state; __syncthreads(); *p = n;", STATE).replace(
            "p = &", "*(int* volatile*)&p = &"
        ),
    ),
    "address in halves": (
        "global_state",
        kernel(
            'unsigned lo, hi; asm volatile("mov.b64 {%0, %1}, %2;" : "=r"(lo), "=r"(hi) : "l"(&state));'
            'unsigned long long a; asm volatile("mov.b64 %0, {%1, %2};" : "=l"(a) : "r"(lo), "r"(hi)); *(int*)a = n;',
            STATE,
        ),
    ),
    "address from another lane": (
        "global_state",
        kernel("*(int*)__shfl_sync(~0u, (unsigned long long)&state, 0) = n;", STATE),
    ),
    "address by its bits": (
        "global_state",
        kernel(
            "unsigned long long a = (unsigned long long)&state, b = 0;\n#pragma unroll 1\n"
            "for (int i = 0; i < 64; ++i) if (a >> i & 1)"
            ' asm volatile("or.b64 %0, %0, %1;" : "+l"(b) : "l"(1ull << i));'
            "*(int*)b = n;",
            STATE,
        ),
    ),
    "address through sums of doubles": (
        "global_state",
        kernel(
            "double a = __longlong_as_double((long long)&state), d = (a + 1.0) - 1.0;"
            "*(int*)__double_as_longlong(a - d) = n;",
            STATE,
        ),
    ),
    "address by predicated loads": (
        "global_state",
        kernel(
            asm(
                "{.reg .pred p; .reg .u64 a; and.b64 a, %1, 4; setp.ne.u64 p, a, 0; mov.u32 %0, 0;"
                " @p ld.global.u32 %0, [%2];}",
                inputs='"l"(&state), "l"(x)',
            )
            + '((int*)y)[n] = n; asm volatile("st.global.u32 [%0], 1;" :: "l"((size_t)n));',
            STATE,
        ),
    ),
    "order of addresses": ("global_state", kernel("for (const float* p = t; p < t + n; ++p) y[n] += *p;", TABLE)),
    "address by its order": (
        "global_state",
        kernel(
            "unsigned long long b = 0;\n#pragma unroll 1\n"
            "for (int i = 63; i >= 0; --i) { int less; unsigned long long k = b | 1ull << i;"
            ' asm volatile("{.reg .pred p; .reg .u64 a; sub.u64 a, %1, %2; setp.gt.u64 p, a, %1;'
            ' selp.u32 %0, 1, 0, p;}"'
            ' : "=r"(less) : "l"(&state), "l"(k)); if (!less) b = k; } *(int*)b = n;',
            STATE,
        ),
    ),
    "address by looking it up": (
        "global_state",
        kernel(
            "unsigned long long b = 0;\n#pragma unroll 1\n"
            "for (int i = 0; i < 64; ++i)"
            " b |= (unsigned long long)((const int*)x)[(unsigned long long)&state >> i & 1] << i;"
            "*(int*)b = n;",
            STATE,
        ),
    ),
    "address copied by its bits": (
        "global_state",
        kernel(
            "__shared__ float s[4];"
            ' asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(s)),'
            ' "l"(x + ((unsigned long long)&state >> 8 & 1)));'
            ' asm volatile("cp.async.wait_all;"); y[0] = s[0];',
            STATE,
        ),
    ),
    "address given to a function of CUDA's name": (
        "external",
        kernel(
            f'asm volatile("{LEAVE}.func __assertfail(.param .b64 p) {{ .reg .b64 a; ld.param.b64 a, [p];'
            " st.u32 [a], 1; ret; }\\n.global .u32 zz;"
            f' {ENTER} .param .b64 q; mov.u64 %rd1, zz; st.param.b64 [q], %rd1; call __assertfail, (q);");'
        ),
    ),
    "address given beside an assertion": (
        "global_state",
        kernel(
            asm(
                "{.reg .u64 a; mov.u64 a, %1; .param .b64 q; st.param.b64 [q], a; .param .b64 m; .param .b64 f;"
                " .param .b32 l; .param .b64 g; .param .b64 c;"
                " st.param.b64 [m], 0; st.param.b64 [f], 0; st.param.b32 [l], 0;"
                " st.param.b64 [g], 0; st.param.b64 [c], 0; call __assertfail, (m, f, l, g, c); call put, (q); }",
                inputs='"l"(&state)',
            )
            + "if (n == 77) { assert(n < 3); put((int*)y); }",
            STATE + 'extern "C" __device__ __noinline__ void put(int* p) { *p = 3; }',
        ),
    ),
    "address given to a function": (
        "global_state",
        kernel("put(n ? &state : (int*)y, n);", STATE + "__device__ __noinline__ void put(int* p, int v) { *p = v; }"),
    ),
    "address given to a function that passes it on": (
        "global_state",
        kernel(
            "y[0] = get(n ? &state : (int*)y, n);",
            STATE + "__device__ __noinline__ void put(int* p, int v) { *p = v; }\n"
            "__device__ __noinline__ int get(int* p, int v) { if (v == 7) put(p, v); return *p; }",
        ),
    ),
    "address given to a function that gives it back": (
        "global_state",
        kernel(
            "*at(&state, n, (int*)y) = n;",
            STATE + "__device__ __noinline__ int* at(int* p, int n, int* y) { return n ? p + n : y; }",
        ),
    ),
    "address given to a function that tells where it lies": (
        "global_state",
        kernel(
            "y[0] = where(&state, (int*)x);",
            STATE + "__device__ __noinline__ int where(const int* p, const int* x) { return p < x ? *p : 3; }",
        ),
    ),
    "address given to a function that keeps it": (
        "global_state",
        kernel(
            "keep(&state, (const int**)y);",
            STATE + "__device__ __noinline__ void keep(const int* p, const int** y) { *y = p; }",
        ),
    ),
    "address given in the place of another": (
        "global_state",
        kernel(
            "put((const int*)x, n ? &state : (int*)y);",
            STATE + "__device__ __noinline__ void put(const int* from, int* to) { *to = *from; }",
        ),
    ),
    "address from a function": (
        "global_state",
        kernel(
            "*at(n, (int*)y) = n;", STATE + "__device__ __noinline__ int* at(int n, int* y) { return n ? &state : y; }"
        ),
    ),
    "asynchronous copy into": (
        "global_state",
        kernel(
            'asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" :: "l"(s), "r"(n));',
            "__device__ int4 s[4];",
        ),
    ),
    "managed": ("global_state", kernel("y[0] = state;", "__managed__ int state;")),
    "asm variable in a body": (
        "global_state",
        kernel(asm(".global .u32 zz;") + asm("{.reg .u64 a; mov.u64 a, zz; st.u32 [a], %0;}")),
    ),
    "asm variable behind a label": ("global_state", kernel(asm("L: .global .u32 zz; st.global.u32 [zz], %0;"))),
    "asm managed variable": (
        "global_state",
        kernel(asm("{.global .attribute(.managed) .u32 z; st.global.u32 [z], %0;}")),
    ),
    "asm variable outside": (
        "global_state",
        kernel(f'asm volatile("{LEAVE}.global .u32 zz; {ENTER} st.global.u32 [zz], 1;");'),
    ),
    "virtual functions": (
        "global_state",
        kernel(
            "A a; B b; P* p = n > 3 ? (P*)&a : (P*)&b; y[0] = p->f(x[0]);",
            "struct P { __device__ virtual float f(float) = 0; };\n"
            "struct A : P { __device__ float f(float v) { return v; } };\n"
            "struct B : P { __device__ float f(float v) { return v + 1; } };",
        ),
    ),
    # functions from elsewhere
    "printf": ("printf", kernel('printf("%d", n);')),
    "vprintf declared by hand": (
        "printf",
        kernel(
            f'asm volatile("{LEAVE}.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b); {ENTER}'
            " .reg .u64 q; mov.u64 q, 0; .param .b64 pa; .param .b64 pb; .param .b32 pr; st.param.b64 [pa], q;"
            ' st.param.b64 [pb], q; call (pr), vprintf, (pa, pb);");'
        ),
    ),
    "malloc": ("malloc", kernel("y[0] = *(float*)malloc(n);")),
    "new": ("malloc", kernel("float* p = new float[n]; p[0] = x[0]; y[0] = p[n];")),
    # registers
    "clock": ("clock", kernel("y[0] = clock();")),
    "clock64": ("clock", kernel("y[0] = clock64();")),
    "clock high": ("clock", kernel(asm("mov.u32 %0, %%clock_hi;"))),
    "clock under comments": ("clock", kernel(asm("mov/**/.u32/**/%0/**/,/**/%%clock/**/;"))),
    "clock declared as its own": ("clock", kernel(asm("{.reg .u32 %%clock; mov.u32 %0, %%clock;}"))),
    "global timer": ("clock", kernel(asm("{.reg .u64 a; mov.u64 a, %%globaltimer; cvt.u32.u64 %0, a;}"))),
    "performance counter": ("clock", kernel(asm("mov.u32 %0, %%pm0;"))),
    "performance event": ("clock", kernel(asm("pmevent 1;"))),
    "grid id": ("launch_id", kernel(asm("{.reg .u64 a; mov.u64 a, %%gridid; cvt.u32.u64 %0, a;}"))),
    "graph": ("launch_id", kernel(asm("{.reg .u64 a; mov.u64 a, %%current_graph_exec; cvt.u32.u64 %0, a;}"))),
    "driver register": ("launch_id", kernel(asm("mov.u32 %0, %%envreg3;"))),
    "grid barrier of an ordinary launch": (
        "launch_id",
        kernel("cooperative_groups::this_grid().sync(); y[0] = n;", "#include <cooperative_groups.h>"),
    ),
    # caches
    "prefetch to stay": ("l2_hint", kernel(asm("prefetch.global.L2::evict_last [%1];", inputs='"l"(x)'))),
    "policy": ("l2_hint", kernel(asm("{.reg .b64 p; createpolicy.fractional.L2::evict_last.b64 p, 1.0;}"))),
    "policy of a load": (
        "l2_hint",
        kernel(asm("ld .global .L2::cache_hint .u32 %0, [%1], %2;", inputs='"l"(x), "l"(0x14F0000000000000ull)')),
    ),
    "discard": ("l2_hint", kernel(asm("discard.global.L2 [%1], 128;", inputs='"l"(y)'))),
    "priority": ("l2_hint", kernel(asm("applypriority.global.L2::evict_normal [%1], 128;", inputs='"l"(y)'))),
    # assembly that reads in two ways
    "comment in a string": ("asm", kernel(asm('.pragma \\"/*\\";') + asm('.pragma \\"*/\\";'))),
    "comment in a comment": ("asm", kernel(asm("/* /* */ mov.u32 %0, 5; // */"))),
    "backslash": ("asm", kernel(asm("// a\\\\\\n mov.u32 %0, 5;"))),
    "carriage return": ("asm", kernel(asm("// a\\r mov.u32 %0, 5;\\n"))),
    # other instructions
    "breakpoint": ("opcode", kernel(asm("brkpt;"))),
    "texture": (
        "opcode",
        kernel(asm("{.reg .f32 a; tex.1d.v4.f32.s32 {a,a,a,a}, [%1, {%0}];}", inputs='"l"(x)')),
    ),
    "several devices": ("opcode", kernel(asm("multimem.red.relaxed.sys.global.add.u32 [%1], %0;", inputs='"l"(x)'))),
}
"""Kind and source by what it does: each compiles, and is refused by what it compiles to."""

HONEST: dict[str, str] = {
    "plain": kernel("y[n] = x[n];"),
    "table": kernel("y[0] = t[n];", TABLE),
    "table of zeros": kernel("y[0] = t[n];", "__device__ const float t[4] = {};"),
    "loops over a table": kernel(
        "float s = 0; for (float v : t) s += v * n; y[0] = s; for (const float* p = t; p != t + n; ++p) y[n] += *p;",
        TABLE,
    ),
    "table in constant memory": kernel("y[0] = t[n];", "__constant__ float t[4] = {1, 2};"),
    "table of a function": kernel(
        "y[0] = at(n) + at(n + 1);", TABLE + "__device__ __noinline__ float at(int n) { return t[n & 3] * n; }"
    ),
    "table given to functions that read": kernel(
        "y[n] = both(t, x, n) + one(t + 4, n) + one(x, n);",
        TABLE + "__device__ __noinline__ float one(const float* p, int n) { return p[n & 3] + p[(n + 1) & 3]; }\n"
        "__device__ __noinline__ float both(const float* p, const float* q, int n) { return one(p, n) * one(q, n); }",
    ),
    "one of two tables": kernel(
        "const float* p = n > 3 ? t : u; y[0] = p[n];", TABLE + "__device__ const float u[4] = {4};"
    ),
    "table or input": kernel("const float* p = n > 3 ? t : x; y[0] = p[n]; p += 3; y[1] = *p;", TABLE),
    "table until the end": kernel("for (const float* p = t; p != t + n; ++p) y[n] += *p;", TABLE),
    "rows of a table": kernel(
        "float s = 0; for (int i = 0; i < n; ++i) { const float4 v = u[i & 3]; s += v.x * v.w; } y[0] = s + u[n].y;",
        "__device__ const float4 u[4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};",
    ),
    "table of pairs": kernel(
        "double s = 0;\n#pragma unroll 1\nfor (int i = n; i > 0; i -= 2) s += u[2 * i + 1].b * u[2 * i].a; y[0] = s;",
        "struct P { double a; int b; };\n__device__ const P u[4] = {{1, 2}, {3, 4}};",
    ),
    "table copied to shared memory": kernel(
        "__shared__ float4 s[32]; __pipeline_memcpy_async(s, t, 16); __pipeline_commit(); __pipeline_wait_prior(0);"
        "__syncthreads(); y[0] = s[n].x;",
        "#include <cuda_pipeline.h>\n__device__ const float4 t[4] = {{1, 2, 3, 4}};",
    ),
    "text as a table": kernel('y[0] = "hello"[n];'),
    "local arrays": kernel("float a[8]; for (int i = 0; i < 8; ++i) a[i] = x[i]; y[0] = a[n];"),
    "constants on the stack": kernel("const float a[8] = {1, 2, 3, 4, 5, 6, 7, 9}; y[0] = a[n & 7];"),
    "shared memory": kernel("__shared__ float s[64]; s[n] = x[n]; __syncthreads(); y[0] = s[n + 1];"),
    "dynamic shared memory": kernel("s[n] = x[n]; __syncthreads(); y[0] = s[n + 1];", "extern __shared__ float s[];"),
    "tables of the mathematical library": kernel(
        "y[0] = sinf(x[0]); y[1] = sin((double)x[0]); y[2] = powf(x[1], x[2]); y[3] = lgammaf(x[9]);"
    ),
    "assert": kernel("assert(n < 3); y[0] = n;"),
    "functions": kernel("y[0] = f(n);", "__device__ __noinline__ float f(int n) { return n * 3.0f; }"),
    "pointer to a function": kernel(
        "float (*f)(float) = n > 3 ? a : b; y[0] = f(x[0]);",
        "__device__ __noinline__ float a(float v) { return v; }\n"
        "__device__ __noinline__ float b(float v) { return v + 1; }",
    ),
    "many ways": kernel(
        "switch (n) { case 0: y[0] = 1; break; case 1: y[1] = 4; break; case 2: y[2] = 9; break;"
        " case 3: y[4] = 2; break; case 4: y[n] = x[n]; break; case 5: y[3] = 8; break; case 6: y[9] = 8; }"
    ),
    "another kernel": kernel("y[0] = n;", 'extern "C" __global__ void other(float* y) { y[0] = 1; }'),
    "half precision": kernel(
        "y[0] = __half2float(__hadd(__float2half(x[0]), __float2half(x[1])));", "#include <cuda_fp16.h>"
    ),
    "brain floats": kernel("y[0] = __bfloat162float(__float2bfloat16(x[0]));", "#include <cuda_bf16.h>"),
    "tensor cores": kernel(
        "using namespace nvcuda; wmma::fragment<wmma::accumulator, 16, 16, 16, float> a;"
        " wmma::load_matrix_sync(a, x, 16, wmma::mem_row_major);"
        " wmma::store_matrix_sync(y, a, 16, wmma::mem_row_major);",
        "#include <mma.h>",
    ),
    "tensor cores on a table": kernel(
        "using namespace nvcuda; wmma::fragment<wmma::accumulator, 16, 16, 16, float> a;"
        " wmma::load_matrix_sync(a, t, 16, wmma::mem_row_major);"
        " wmma::store_matrix_sync(y, a, 16, wmma::mem_row_major);",
        "#include <mma.h>\n" + TABLE,
    ),
    "cooperative groups": kernel(
        "namespace cg = cooperative_groups; auto warp = cg::tiled_partition<32>(cg::this_thread_block());"
        " y[0] = cg::reduce(warp, x[n], cg::plus<float>());",
        "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>",
    ),
    "block reduction of a library": kernel(
        "using Reduce = cub::BlockReduce<float, 32>; __shared__ Reduce::TempStorage s;"
        " y[0] = Reduce(s).Sum(x[threadIdx.x]);",
        "#include <cub/block/block_reduce.cuh>",
    ),
    "atomics of a library": kernel(
        "cuda::atomic_ref<float, cuda::thread_scope_device>(y[0]).fetch_add(x[n]);", "#include <cuda/atomic>"
    ),
    "shared memory barrier": kernel(
        "__shared__ __mbarrier_t b; if (threadIdx.x == 0) __mbarrier_init(&b, 32); __syncthreads();"
        " auto token = __mbarrier_arrive(&b); while (!__mbarrier_test_wait(&b, token)) {} y[0] = 1;",
        "#include <cuda_awbarrier_primitives.h>",
    ),
    "prefetch": kernel(asm("prefetch.global.L2 [%1];", inputs='"l"(x)')),
    "streaming accesses": kernel("__stcs(y, __ldcs(x + n));"),
    "hints for L1": kernel(asm("ld.global.L1::no_allocate.L2::128B.u32 %0, [%1];", inputs='"l"(x)')),
    "multiprocessor": kernel(asm("mov.u32 %0, %%smid;")),
    "sleep": kernel("__nanosleep(20); y[0] = n;"),
    "scopes and labels": kernel(asm("{ $a: mov.u32 %0, 1; bra.uni $b; $b: }{{}}")),
    "vectors": kernel(asm("{.reg .v4 .u32 q; mov.v4.u32 q, {%0, %0, 1, 2}; mov.u32 %0, q.z;}")),
    "branch table": kernel(asm("{ L: .branchtargets M, O; brx.idx %0, L; M: mov.u32 %0, 3; O: }")),
    "bulk copies": kernel(
        'asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; fence.proxy.async;"); y[0] = n;'
    ),
    "dependent launch": kernel('asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;"); y[0] = n;'),
    "cluster": kernel("y[0] = n;", "")
    .replace("__global__ void", "__global__ void __cluster_dims__(2, 1, 1)")
    .replace("y[0] = n;", asm("mov.u32 %0, %%cluster_ctarank;")),
    "macros": kernel("y[0] = JOIN(x, )[n] * TWICE(n);", "#define JOIN(a, b) a##b\n#define TWICE(v) \\\n  (2 * (v))"),
    "text in skipped groups": "#if 0\ndon't\n#endif\n" + kernel("y[0] = n;"),
}
"""Sources that no rule refuses; each is a neighbour of one above."""
