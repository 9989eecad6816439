"""Candidates that try to crash, hang, flood or exhaust what judges them, each with the verdicts that are right."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep, Outcome

LINES = 20_000
"""Of compiler messages, in the floods of them."""


@dataclass(frozen=True)
class Hostile:
    """A candidate for any problem with float32 `in0` and `out0`. `emulator` and `gpu` are the statuses that are right
    there; `deadline` says which limit it runs into, if any: `compile` or `launch`."""

    name: str
    candidate: Candidate
    emulator: frozenset[str]
    gpu: frozenset[str]
    deadline: str | None = None

    def right(self, outcome: Outcome, *, on_gpu: bool) -> bool:
        """Whether the verdict is one of those that are right, and says why."""
        allowed = self.gpu if on_gpu else self.emulator
        return outcome.status in allowed and (outcome.failure is not None or outcome.status == "not_measured")


def kernel(body: str, before: str = "", parameters: str = "const float* x, float* y") -> str:
    return f'{before}\nextern "C" __global__ void k({parameters}) {{\n{body}\n}}\n'


def one(
    name: str, source: str, emulator: str, gpu: str | None = None, *, deadline: str | None = None,
    grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (64, 1, 1), args: tuple = ("in0", "out0"),
    buffers: dict[str, Buffer] | None = None, entry: str = "k", **more,
) -> Hostile:  # fmt: skip
    step = KernelStep(kernel=entry, grid=grid, block=block, args=args, **more)
    plan = LaunchPlan(steps=(step,), buffers=buffers or {})
    candidate = Candidate(source=source, plan=plan)
    return Hostile(
        name, candidate, frozenset(emulator.split()), frozenset((gpu or emulator).split()), deadline=deadline
    )


def samples() -> list[Hostile]:
    """All of them; no two are the same candidate."""
    return [*endless(), *wild(), *floods(), *bombs(), *launches()]


def endless() -> list[Hostile]:
    """Kernels that do not come to an end."""
    lock = "__shared__ int lock; if (threadIdx.x == 0) lock = 1; __syncthreads();"
    return [
        # The assembler for a device may take the loop out, as nothing is seen of it: then nothing is written either.
        one("endless loop", kernel("volatile int go = 1; while (go) {} y[0] = 1;"), "hang", "hang wrong",
            deadline="launch"),
        one("endless counting", kernel("for (unsigned i = 1; i; i += 2) if (x[i & 7] > 2e30f) break;\ny[0] = 1;"),
            "hang not_measured", "hang", deadline="launch"),
        one("endless writing", kernel("for (unsigned i = 0;; ++i) y[threadIdx.x] = i;"), "hang not_measured", "hang",
            deadline="launch"),
        one("lock never freed", kernel(f"{lock} while (atomicCAS(&lock, 0, 1)) {{}} y[0] = 1;"),
            "hang not_measured", "hang", deadline="launch"),
        one("barrier that half the block never reaches", kernel(
            "__shared__ volatile int flag; if (threadIdx.x == 0) flag = 0; __syncthreads();\n"
            "if (threadIdx.x < 32) __syncthreads(); else while (!flag) {}\nif (threadIdx.x == 0) flag = 1;\ny[0] = 1;"),
            "hang wrong", "hang", deadline="launch"),
        one("sleeps for ever", kernel("for (;;) __nanosleep(1000000);"), "hang rejected not_measured",
            deadline="launch"),
    ]  # fmt: skip


def wild() -> list[Hostile]:
    """Kernels that touch what is not theirs, or stop by themselves."""
    recursion = "__device__ __noinline__ float deep(volatile float* p, int n) { volatile float a[64]; a[n & 63] = *p;\n"
    recursion += "return n > (1 << 30) ? a[0] : deep(a, n + 1) + a[1]; }"
    crash, gone = "crashed", "crashed wrong"
    return [
        one("null read", kernel("y[threadIdx.x] = *(volatile float*)0;"), crash),
        one("low address write", kernel("*(volatile float*)0x10 = x[0];"), crash),
        one("far read", kernel("y[0] = x[1ll << 40];"), crash),
        one("far write", kernel("y[(1ll << 38) + threadIdx.x] = 1;"), crash),
        one("negative write", kernel("y[-(1ll << 36)] = x[0];"), crash),
        one("kernel space write", kernel("*(volatile float*)0xffff800000000000ull = x[0];"), crash),
        one("one past the end", kernel("y[1 << 22] = 1;"), crash, gone),
        one("misaligned read", kernel(
            "float4 v = *(const float4*)(x + 1 + threadIdx.x); y[threadIdx.x] = v.x + v.y * v.z - v.w;"), crash),
        one("misaligned write", kernel("*(double*)((char*)y + 4 * threadIdx.x + 1) = 1.0;"), crash),
        one("shared memory overrun", kernel(
            "__shared__ volatile float s[32];\nfor (int i = 0; i < (1 << 22); i += 1024) s[i] = i;\ny[0] = s[0];"),
            crash),
        one("stack smash", kernel("volatile int a[4]; for (int i = 0; i < (1 << 20); ++i) a[i] = i; y[0] = a[0];"),
            crash, "crashed wrong launch_error"),
        one("deep recursion", kernel("y[0] = deep(y, 0);", recursion), "crashed hang not_measured", "crashed hang"),
        one("trap", kernel("__trap();"), crash),
        one("failed assertion", kernel("assert(x[0] > 1e30f); y[0] = 1;"), "crashed not_measured", crash),
        one("writes to its input", kernel("((float*)x)[threadIdx.x] = 7; y[threadIdx.x] = 7;"), "wrong crashed"),
        one("never writes", kernel("if (x[0] > 1e30f) y[0] = 1;"), "wrong"),
    ]  # fmt: skip


def floods() -> list[Hostile]:
    """Kernels and sources that write very much."""
    text = "." * 200
    printing = f'for (int i = 0; i < 100000; ++i) printf("%d {text}\\n", i);'
    stops = "wrong hang rejected not_measured compile_error"
    warnings = "".join(f"#warning line {n} of a flood that says nothing {text}\n" for n in range(LINES))
    errors = "".join(f"#error line {n} of a flood that says nothing {text}\n" for n in range(LINES))
    unknown = "".join(f"int v{n} = undeclared_{n};\n" for n in range(LINES))
    return [
        one("gigabytes of printf", kernel(printing + " y[0] = 1;"), stops, grid=(128, 1, 1), block=(1024, 1, 1)),
        one("endless printf", kernel(f'for (;;) printf("{text}\\n");'), stops, deadline="launch"),
        one("flood of warnings", kernel("y[0] = 1;", warnings), "wrong rejected compile_error"),
        one("flood of errors", kernel("y[0] = 1;", errors), "compile_error rejected"),
        one("flood of undeclared names", kernel(unknown), "compile_error rejected"),
        one("flood of brackets", kernel("(" * 100_000), "compile_error rejected", deadline="compile"),
        one("one very long line", "__device__ const int a = " + "1 + " * 400_000 + "1;" + kernel("y[0] = 1;"),
            "wrong rejected compile_error", deadline="compile"),
        one("not text", "\x01\x02\x7f" * 1000 + kernel("y[0] = 1;"), "compile_error rejected"),
    ]  # fmt: skip


def bombs() -> list[Hostile]:
    """Small sources that cost the compiler very much time or memory."""
    macros = "\n".join(["#define M0 y[0] += 1.0f;"] + [f"#define M{i + 1} " + f"M{i} " * 10 for i in range(7)])
    types = (
        "template <int D, long long P> struct T { static constexpr int v = T<D - 1, 2 * P>::v + "
        "T<D - 1, 2 * P + 1>::v; };\ntemplate <long long P> struct T<0, P> { static constexpr int v = 1; };"
    )
    loop = "__device__ constexpr int f() { int s = 0; for (long long i = 0; i < (1ll << 40); ++i) s += i; return s; }"
    live = "float r[512];\n#pragma unroll\nfor (int i = 0; i < 512; ++i) r[i] = x[i];\n#pragma unroll\n"
    live += (
        "for (int j = 0; j < 400; ++j)\n#pragma unroll\nfor (int i = 0; i < 512; ++i) r[i] += r[(i * 7 + j) & 511];\n"
    )
    live += "#pragma unroll\nfor (int i = 0; i < 512; ++i) y[i] = r[i];"
    unroll = "float s = 0;\n#pragma unroll\nfor (int i = 0; i < 3000; ++i)\n#pragma unroll\n"
    unroll += "for (int j = 0; j < 3000; ++j) s = s * x[(i * j) & 63] + x[(i + j) & 63];\ny[0] = s;"
    include = '#include "/etc/shadow"\n'
    late = "compile_error rejected"
    # A bomb that a later compiler defuses is a kernel that gives wrong numbers.
    maybe = "compile_error rejected wrong hang crashed not_measured"
    return [
        one("macro bomb", kernel("M7", macros), late, deadline="compile"),
        one("template bomb", kernel("y[0] = T<40, 0>::v;", types), late, deadline="compile"),
        one("constant expression bomb", kernel("constexpr int v = f(); y[0] = v;", loop), late, deadline="compile"),
        one("unroll bomb", kernel(unroll), maybe, deadline="compile"),
        one("assembler bomb", kernel(live), maybe, deadline="compile"),
        one("includes a secret", kernel("y[0] = 1;", include), late),
        one("includes an endless file", kernel("y[0] = 1;", '#include "/dev/zero"\n'), late),
        one("includes itself", kernel("y[0] = 1;", '#include "kernel.cu"\n'), late),
    ]  # fmt: skip


def launches() -> list[Hostile]:
    """Plans that no device can run."""
    fine = kernel("y[threadIdx.x] = x[threadIdx.x];")
    count = kernel("if (threadIdx.x < n) y[threadIdx.x] = 1;", parameters="const float* x, float* y, int n")
    scratch = kernel("s[0] = 1; y[0] = s[0];", parameters="const float* x, float* y, float* s")
    huge = {"s": Buffer(dtype="float32", shape=(1 << 42,))}
    odd = {"s": Buffer(dtype="float31", shape=(4,))}
    named = ("in0", "out0", "s")
    library = LibraryStep(library="system", args=("in0",), out="out0")
    return [
        one("too many threads", fine, "launch_error", block=(2048, 1, 1)),
        one("too much shared memory", fine, "launch_error", shared_bytes=1 << 20),
        one("negative shared memory", fine, "launch_error", shared_bytes=-4),
        one("empty grid", fine, "launch_error", grid=(0, 1, 1)),
        one("endless grid", fine, "launch_error", grid=(2, 1 << 20, 1)),
        one("cluster of a hundred", fine, "launch_error", cluster=(100, 1, 1), grid=(100, 1, 1)),
        one("cooperative and too large", fine, "launch_error", cooperative=True, grid=(1 << 20, 1, 1)),
        one("no such kernel", fine, "compile_error launch_error", entry="other"),
        one("an argument short", count, "launch_error"),
        one("an argument too wide", count, "launch_error", args=("in0", "out0", {"i64": 4})),
        one("no such buffer", fine, "launch_error", args=("in0", "nothing")),
        one("no such input", fine, "launch_error", args=("in99", "out0")),
        one("terabytes of scratch", scratch, "launch_error", args=named, buffers=huge),
        one("scratch of no type", scratch, "launch_error", args=named, buffers=odd),
        Hostile("no such library", Candidate(source=fine, plan=LaunchPlan(steps=(library,))),
                frozenset({"launch_error"}), frozenset({"launch_error"})),
    ]  # fmt: skip
