"""Whatever a candidate gets wrong, at whatever stage, is its own: never a fault of the machinery, never a traceback."""

import asyncio

import judge_problems as problems
import pytest

from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.target import Target

LINEAR = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))
    def forward(self, x):
        return x @ self.weight
def get_inputs():
    return [torch.rand(8, 16)]
def get_init_inputs():
    return []
"""

SOURCE = """
extern "C" __global__ void k(const float* x, const float* w, float* y, int n, float c) {
    int i = threadIdx.x & 15, r = threadIdx.x >> 4;
    float s = 0.0f;
    for (int j = 0; j < n; ++j) s = fmaf(x[r * 16 + j], w[j * 16 + i], s);
    y[r * 16 + i] = s * c;
}
"""
ARGS = ("in0", "param:weight", "out0", {"i32": 16}, {"f32": 1.0})
HUGE = 2**31 - 1
NAN, INFINITE = float("nan"), float("inf")


def step(**fields):
    return KernelStep.model_construct(
        **{"kernel": "k", "grid": (1, 1, 1), "block": (128, 1, 1), "cluster": (1, 1, 1), "shared_bytes": 0,
           "args": ARGS, "cooperative": False, **fields}
    )  # fmt: skip


def made(source=SOURCE, *steps, buffers=None, prepare=(), **fields):
    """A candidate as the Python interface takes it: nobody has looked at its plan."""
    plan = LaunchPlan(steps=steps or (step(**fields),), buffers=buffers or {}, prepare=prepare)
    return Candidate(source=source, plan=plan)


def with_arguments(*changes):
    args = list(ARGS)
    for position, value in changes:
        args[position] = value
    return made(args=tuple(args))


def library(name="mm", args=("in0", "param:weight"), out="out0", **kwargs):
    return made("", LibraryStep(library=name, args=args, out=out, kwargs=kwargs))


def scratch(dtype="float32", shape=(4,), args=("in0", "param:weight", "t", {"i32": 16}, {"f32": 1.0})):
    return made(args=args, buffers={"t": Buffer(dtype=dtype, shape=shape)})


LAUNCH, WRONG, REFUSED = {"launch_error"}, {"wrong"}, {"rejected", "compile_error"}
CRASH = {"crashed"}
CASES = {
    "grid of zero": (made(grid=(0, 1, 1)), LAUNCH),
    "negative grid": (made(grid=(-1, 1, 1)), LAUNCH),
    "grid beyond y": (made(grid=(1, 65536, 1)), LAUNCH),
    "giant grid": (made(grid=(HUGE, 65535, 65535)), LAUNCH | {"not_measured"}),
    "grid beyond 64 bits": (made(grid=(2**70, 1, 1)), LAUNCH),
    "block of zero": (made(block=(0, 1, 1)), LAUNCH),
    "negative block": (made(block=(-128, -1, 1)), LAUNCH),
    "block of 2048": (made(block=(2048, 1, 1)), LAUNCH),
    "block too deep": (made(block=(1, 1, 128)), LAUNCH),
    "cluster of zero": (made(cluster=(0, 1, 1)), LAUNCH),
    "cluster of 17": (made(grid=(17, 1, 1), cluster=(17, 1, 1)), LAUNCH),
    "cluster that does not divide": (made(grid=(3, 1, 1), cluster=(2, 1, 1)), LAUNCH),
    "negative shared": (made(shared_bytes=-1), LAUNCH),
    "too much shared": (made(shared_bytes=10**9), LAUNCH),
    "shared beyond 64 bits": (made(shared_bytes=2**70), LAUNCH),
    "cooperative beyond the device": (made(grid=(10**6, 1, 1), cooperative=True), LAUNCH),
    "unknown argument": (with_arguments((0, "in7")), LAUNCH),
    "unknown parameter": (with_arguments((1, "param:bias")), LAUNCH),
    "no arguments": (made(args=()), LAUNCH),
    "one argument too many": (made(args=(*ARGS, "in0")), LAUNCH),
    "number for a tensor": (with_arguments((0, {"i32": 1})), LAUNCH),
    "address out of the air": (with_arguments((0, {"u64": 4096})), CRASH),
    "negative address": (with_arguments((0, {"i64": -8})), CRASH),
    "tensor for a number": (with_arguments((3, "in0")), LAUNCH),
    "no such scalar type": (with_arguments((3, {"i31": 16})), LAUNCH),
    "two scalar types": (with_arguments((3, {"i32": 16, "u32": 16})), LAUNCH),
    "no scalar type": (with_arguments((3, {})), LAUNCH),
    "i32 overflow": (with_arguments((3, {"i32": 2**31})), LAUNCH),
    "i32 of half": (with_arguments((3, {"i32": 1.5})), LAUNCH),
    "i32 of NaN": (with_arguments((3, {"i32": NAN})), LAUNCH),
    "i32 of infinity": (with_arguments((3, {"i32": INFINITE})), LAUNCH),
    "f32 of NaN": (with_arguments((4, {"f32": NAN})), LAUNCH | WRONG),
    "f32 of infinity": (with_arguments((4, {"f32": INFINITE})), LAUNCH | WRONG),
    "f32 of a giant": (with_arguments((4, {"f32": 10**400})), LAUNCH),
    "f32 beyond float32": (with_arguments((4, {"f32": 1e300})), LAUNCH | WRONG),
    "loop without end": (with_arguments((3, {"i32": HUGE})), CRASH),
    "no kernel of that name": (made(kernel="other"), REFUSED),
    "name of no kernel": (made(kernel=""), REFUSED),
    "empty source": (made(""), REFUSED),
    "binary junk": (made("\x00\x01\xff\ufffd\x7fELF" * 50), REFUSED),
    "lone surrogate": (made(SOURCE + "// \ud800"), REFUSED),
    "division by zero": (made(SOURCE.replace("s * c", "s * (float)(n / (n - 16))")), WRONG),
    "misaligned": (made(SOURCE.replace("float s = 0.0f;", "float s = *(const float*)((const char*)x + 1);")), CRASH),
    "device heap": (made(SOURCE.replace("float s = 0.0f;", "float s = *(float*)malloc(4);")), REFUSED | CRASH),
    "unknown dtype": (scratch("float99"), LAUNCH),
    "dtype that is no dtype": (scratch("nn"), LAUNCH),
    "dtype of sub-bytes": (scratch("quint4x2"), LAUNCH),
    "dtype with a scale": (scratch("qint8"), LAUNCH),
    "complex buffer": (scratch("complex64", (128,)), WRONG | LAUNCH),
    "buffer larger than memory": (scratch("float32", (2**40,)), LAUNCH),
    "buffer beyond 64 bits": (scratch("float32", (2**40, 2**40)), LAUNCH),
    "negative buffer": (scratch("float32", (4, -1)), LAUNCH),
    "huge beside nothing": (scratch("float32", (0, 2**62, 2**62)), LAUNCH | CRASH),
    "empty buffer": (scratch("float32", (0,)), CRASH | LAUNCH),
    "buffer too small": (scratch("float32", (4,)), CRASH),
    "many dimensions": (scratch("float32", (1,) * 200), LAUNCH | CRASH),
    "library: wrong shapes": (library(args=("param:weight", "in0")), LAUNCH),
    "library: one argument": (library(args=("in0",)), LAUNCH),
    "library: a number": (library(args=("in0", {"f32": 1.0})), LAUNCH),
    "library: an empty number": (library(args=("in0", {})), LAUNCH),
    "library: unknown operator": (library("eval"), LAUNCH | REFUSED),
    "library: keyword": (library(out="out0", alpha=2.0), LAUNCH | REFUSED),
    "library: keyword of junk": (library("addmm", ("in0", "in0", "param:weight"), alpha={"a": []}), LAUNCH),
    "library: keyword too large": (library("addmm", ("in0", "in0", "param:weight"), alpha=10**400), LAUNCH),
    "library: into an input": (library(out="in0"), LAUNCH | REFUSED),
    "library: out of nowhere": (library(out="t9"), LAUNCH | REFUSED),
    "prepare on an input": (made(prepare=(step(),)), {"ok", *LAUNCH}),
    "prepare without its kernel": (made(prepare=(step(kernel="none"),)), REFUSED | LAUNCH),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    loaded = problems.problem(folder, LINEAR)

    async def body():
        found = {}
        with Compiler("sm_90", cache_dir=folder / "cache", jobs=1) as compiler:
            async with Evaluator(loaded.ref, loaded.hash, Target(kind="cpu", arch="sm_90"), compiler) as judge:
                for name, (candidate, _) in {"right": (made(), None), **CASES}.items():
                    try:
                        found[name] = (await judge.evaluate([candidate], level="screen"))[0]
                    except Exception as error:
                        found[name] = error
                found["right again"] = (await judge.evaluate([made(SOURCE + "\n")], level="screen"))[0]
        return found

    return asyncio.run(body())


def test_a_right_candidate_passes_before_and_after(outcomes):
    assert [outcomes[name].status for name in ("right", "right again")] == ["screened"] * 2


@pytest.mark.parametrize("name", CASES)
def test_the_mistake_is_the_candidates(outcomes, name):
    outcome = outcomes[name]
    assert not isinstance(outcome, Exception), repr(outcome)
    assert outcome.status in {"screened" if one == "ok" else one for one in CASES[name][1]}, outcome.failure
    if outcome.status not in ("ok", "screened"):
        assert outcome.failure.stage != "infrastructure"
        assert outcome.failure.message
        assert "Traceback" not in outcome.failure.message
