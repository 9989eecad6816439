"""The skeleton of a launch plan for a source that came without one, and what it leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import Buffer, KernelStep, LaunchPlan
from warpsmith.tools.operands import Operand, operands_of
from warpsmith.tools.plan_file import is_reserved
from warpsmith.tools.sketch.signatures import Parameter, Signature, signatures

Argument = str | dict[str, int | float]
THREADS = 256
"""Of a block, where the source does not bound it."""
_SCALARS: dict[str, str] = {
    **dict.fromkeys(("int", "int32_t", "signed", "signed int", "short"), "i32"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint32_t", "uint", "unsigned short"), "u32"),
    **dict.fromkeys(("long", "long long", "long int", "long long int", "int64_t", "size_t", "ptrdiff_t", "ssize_t",
                     "unsigned long", "unsigned long long", "uint64_t"), "i64"),
    "float": "f32", "double": "f64",
}  # fmt: skip
_DTYPES: dict[str, str] = {
    **dict.fromkeys(("float", "float2", "float3", "float4"), "float32"),
    **dict.fromkeys(("double", "double2"), "float64"),
    **dict.fromkeys(("half", "__half", "half2", "__half2"), "float16"),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162"), "bfloat16"),
    **dict.fromkeys(("int", "int32_t", "int2", "int4"), "int32"),
    **dict.fromkeys(("long", "long long", "int64_t"), "int64"),
    **dict.fromkeys(("unsigned char", "uint8_t"), "uint8"),
    "bool": "bool",
}
_FIRST_SIZE = {"m", "rows", "row", "batch", "b", "bs", "batch_size", "n_rows", "num_rows", "nrows"}
_LAST_SIZE = {"cols", "col", "k", "c", "d", "dim", "width", "hidden", "n_cols", "num_cols", "ncols", "features"}


class Sketch(NamedTuple):
    """A plan that may be launched once every question has an answer."""

    plan: LaunchPlan
    questions: tuple[str, ...]


@dataclass
class _Sketcher:
    operands: tuple[Operand, ...]
    questions: list[str] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def step(self, kernel: Signature, *, last: bool) -> KernelStep:
        """A launch of one kernel: arguments by order and type, grid by the elements of the output."""
        taken: set[str] = set()
        arguments = tuple(self._argument(kernel, one, taken, last=last) for one in kernel.parameters)
        threads = kernel.bounds or THREADS
        elements = max((one.numel for one in self._named("out")), default=1)
        dims = "three" if kernel.dimensions == 3 else "two"
        if kernel.dimensions > 1:
            self._ask(kernel, f"grid and block: its body uses {dims} dimensions; how many blocks and threads in each?")
        else:
            self._ask(
                kernel, f"grid and block: one thread for each element of the output is a guess ({threads} a block)"
            )
        if kernel.dynamic_shared:
            self._ask(kernel, "shared_bytes: it declares `extern __shared__`; how many bytes a block?")
        if not kernel.linkage_c:
            self._ask(kernel, f'name: put extern "C" before it (line {kernel.line}), so that it can be found')
        return KernelStep(
            kernel=kernel.name, grid=(ceil(elements / threads), 1, 1), block=(threads, 1, 1), args=arguments
        )

    def _argument(self, kernel: Signature, one: Parameter, taken: set[str], *, last: bool) -> Argument:
        found = self._tensor(kernel, one, taken, last=last) if one.pointer else self._scalar(kernel, one, taken)
        if isinstance(found, str):
            taken.add(found)
        return found

    def _tensor(self, kernel: Signature, one: Parameter, taken: set[str], *, last: bool) -> str:
        """A tensor for a pointer: the next of its kind and type that the kernel is not given yet."""
        dtype = _DTYPES.get(one.ctype)
        if one.name in self.buffers and one.name not in taken:
            return one.name
        if one.const:
            pool = [*self._named("in"), *self._named("param:")]
            scratch = [name for name in self.buffers if name in self.written and name not in taken]
        else:
            pool, scratch = [*self._named("out")], []
        open_ = [p for p in pool if p.name not in taken and not p.scalar and p.dtype == (dtype or p.dtype)]
        same = next((p for p in open_ if one.name and p.name.split(":")[-1] == one.name), None)
        if same is None and scratch and not open_:
            return scratch[0]
        if not one.const and not last and same is None and not (open_ and one.name.startswith(("out", "y"))):
            open_ = []
        if not open_ and same is None:
            return self._scratch(kernel, one, dtype)
        chosen = same or open_[0]
        self.written.update({chosen.name} if not one.const else set())
        if len(open_) > 1 and same is None:
            others = ", ".join(p.name for p in open_)
            self._ask(kernel, f"{_shown(one)}: {chosen.name} is taken by order; it could be any of {others}")
        return chosen.name

    def _scratch(self, kernel: Signature, one: Parameter, dtype: str | None) -> str:
        free = one.name and not is_reserved(one.name) and one.name not in self.buffers
        name = one.name if free else f"tmp{len(self.buffers)}"
        elements = max((p.numel for p in self._named("out")), default=1)
        self.buffers[name] = Buffer(dtype=dtype or "float32", shape=(elements,))
        self.written.add(name)
        role = "read from" if one.const else "written to"
        self._ask(kernel, f"{_shown(one)}: {role} scratch memory {name} is a guess; which tensor is it, or how large?")
        return name

    def _scalar(self, kernel: Signature, one: Parameter, taken: set[str]) -> Argument:
        """A number for a parameter by value: an input that is one, else a size that its name suggests."""
        kind = _SCALARS.get(one.ctype)
        real = kind in ("f32", "f64")
        wanted = "Python float" if real else "Python int"
        given = next((p.name for p in self._named("in") if p.dtype == wanted and p.name not in taken), None)
        if given is not None:
            return given
        if kind is None:
            self._ask(kernel, f"{_shown(one)}: numbers are passed as i32, i64, u32, f32 or f64; change its type")
            return {"i32": 0}
        if real:
            self._ask(kernel, f"{_shown(one)}: which number? 1.0 is a guess")
            return {kind: 1.0}
        size, what = self._size(one.name.lower())
        self._ask(kernel, f"{_shown(one)}: {size} ({what}) is a guess")
        return {kind: size}

    def _size(self, name: str) -> tuple[int, str]:
        tensor = next((p for p in self._named("in") if not p.scalar), None)
        shape = tensor.shape if tensor is not None else ()
        if tensor is not None and shape and name in _FIRST_SIZE:
            return shape[0], f"the first size of {tensor.name}"
        if tensor is not None and shape and name in _LAST_SIZE:
            return shape[-1], f"the last size of {tensor.name}"
        return max((p.numel for p in self._named("out")), default=1), "the elements of the output"

    def _named(self, prefix: str) -> list[Operand]:
        return [one for one in self.operands if one.name.startswith(prefix)]

    def _ask(self, kernel: Signature, question: str) -> None:
        self.questions.append(f"{kernel.name}: {question}")


def sketch_plan(source: str, problem: Problem | Sequence[Operand]) -> Sketch:
    """The skeleton of a launch plan from the kernels' signatures, with types and values where they can be guessed, and
    a question for everything that is a guess. UserError where the source has no kernel that can be launched."""
    operands = operands_of(problem) if isinstance(problem, Problem) else tuple(problem)
    found = signatures(source)
    kernels = [one for one in found if not one.template]
    if not kernels:
        hint = "; a template cannot be launched: instantiate it in a kernel that is none" if found else ""
        raise UserError(f'the source defines no kernel (extern "C" __global__ void NAME(...) {{ ... }}){hint}')
    sketcher = _Sketcher(operands)
    steps = tuple(sketcher.step(one, last=one is kernels[-1]) for one in kernels)
    if len(kernels) > 1:
        sketcher.questions.append(f"steps: {len(kernels)} kernels are launched in the order of the source; is that so?")
    missing = [one.name for one in operands if one.name.startswith("out") and one.name not in sketcher.written]
    if missing:
        sketcher.questions.append(f"outputs: no kernel is given {', '.join(missing)}; which one writes it?")
    return Sketch(LaunchPlan(buffers=sketcher.buffers, steps=steps), tuple(sketcher.questions))


def _shown(one: Parameter) -> str:
    star = "*" if one.pointer else ""
    return f"`{'const ' if one.const else ''}{one.ctype}{star} {one.name}`".replace(" `", "`")
