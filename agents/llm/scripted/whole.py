"""Writes a plain whole kernel from the region that a writer's prompt states: one thread for each kept point."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from warpsmith.agents.llm.scripted.players import Turn

THREADS = 128

_TENSOR = re.compile(r"^- (?P<name>[\w:.]+): (?P<dtype>\w+) \[(?P<shape>[\d, ]*)\]", re.MULTILINE)
_AXES = re.compile(r"^ *kept (?P<kept>.*); reduced (?P<reduced>.*)$", re.MULTILINE)
_LOAD = re.compile(r"^(?P<var>\w+) = (?P<buffer>[\w:.]+)\[(?P<address>.+)\]  \((?P<level>\w+),")
_REDUCTION = re.compile(r"^(?P<var>\w+) = (?P<kind>sum|max|min|prod)\((?P<operand>\w+)\)$")
_STORE = re.compile(r"^(?P<buffer>out\d+)\[(?P<address>.+)\] = (?P<var>\w+)$")
_LINE = re.compile(r"^(?P<var>\w+) = (?P<text>.+)$")
_C_TYPES = {"float32": "float", "int64": "long long", "int32": "int", "bool": "bool", "float64": "double"}
_START = {"sum": "0.0", "prod": "1.0", "max": "-HUGE", "min": "HUGE"}
_STEP = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "fmax({0}, (double){1})", "min": "fmin({0}, (double){1})"}


@dataclass
class _Kernel:
    """The kernel's text as it grows, and what it has read of the region."""

    reduced: list[tuple[str, int]]
    loads: list[re.Match[str]] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    """Lines of the present round, or behind the last one."""
    reductions: list[re.Match[str]] = field(default_factory=list)
    inner: set[str] = field(default_factory=set)
    """Names that differ from point to point of the reduced axes."""

    def sweep(self, inside: list[str]) -> None:
        """A loop over the reduced axes, with the loads of each point."""
        for name, size in self.reduced:
            self.body.append(f"for (long long {name} = 0; {name} < {size}; ++{name}) {{")
        self.body += [_read(load) for load in self.loads] + inside + ["}" for _ in self.reduced]

    def close_round(self) -> None:
        """The loop of a round whose reductions are known."""
        if not self.reductions:
            return
        self.body += [f"double {r['var']}_sum = {_START[r['kind']]};" for r in self.reductions]
        steps = [
            f"{r['var']}_sum = {_STEP[r['kind']].format(r['var'] + '_sum', r['operand'])};" for r in self.reductions
        ]
        self.sweep([*self.pending, *steps])
        self.body += [f"const float {r['var']} = (float){r['var']}_sum;" for r in self.reductions]
        self.pending, self.reductions = [], []


def whole_kernel(prompt: str) -> Turn:
    """Source, steps and no buffers. Prose where the prompt states no region of the known form."""
    axes = _AXES.search(prompt)
    if axes is None:
        return Turn(prose="There is no region here that I can write.")
    kept, reduced = _sizes(axes["kept"]), _sizes(axes["reduced"])
    kernel, stores = _Kernel(reduced), []
    region = prompt[axes.end() :].lstrip("\n").split("\n\n")[0]
    for line in (line.strip() for line in region.split("\n")):
        store = _STORE.match(line)
        if store is not None:
            stores.append(f"{store['buffer']}[{store['address']}] = {store['var']};")
        else:
            _read_line(kernel, line)
    kernel.close_round()
    kernel.sweep([*kernel.pending, *stores])
    tensors = [(m["name"], m["dtype"]) for m in _TENSOR.finditer(prompt)]
    source = _source(kernel, kept, tensors)
    points = math.prod(size for _, size in kept)
    step = {"kernel": "written", "grid": [-(-points // THREADS), 1, 1], "block": [THREADS, 1, 1], "shared_bytes": 0,
            "args": [name for name, _ in tensors]}  # fmt: skip
    return Turn({"why": "one thread a point: plain and right", "buffers": [], "steps": [step]}, {"source": source})


def _read_line(kernel: _Kernel, line: str) -> None:
    load, reduction, match = _LOAD.match(line), _REDUCTION.match(line), _LINE.match(line)
    if load is not None:
        kernel.loads.append(load)
        kernel.inner.add(load["var"])
    elif reduction is not None:
        kernel.reductions.append(reduction)
    elif match is not None:
        kernel.close_round()
        text = f"const float {match['var']} = {match['text']};"
        axes = {name for name, _ in kernel.reduced}
        if (kernel.inner | axes).isdisjoint(re.findall(r"\w+", match["text"])):
            kernel.body.append(text)
        else:
            kernel.inner.add(match["var"])
            kernel.pending.append(text)


def _source(kernel: _Kernel, kept: list[tuple[str, int]], tensors: list[tuple[str, str]]) -> str:
    parameters = ", ".join(
        f"{'' if name.startswith('out') else 'const '}{_C_TYPES.get(dtype, 'float')}* {_plain(name)}"
        for name, dtype in tensors
    )
    points = math.prod(size for _, size in kept)
    lines = ["#define HUGE __longlong_as_double(0x7ff0000000000000LL)",
             f'extern "C" __global__ void written({parameters}) {{',
             "const long long point = (long long)blockIdx.x * blockDim.x + threadIdx.x;",
             f"if (point >= {points}) return;"]  # fmt: skip
    return "\n".join([*lines, *_decoded(kept), *kernel.body, "}"]) + "\n"


def _decoded(kept: list[tuple[str, int]]) -> Iterator[str]:
    """The axis variables from the number of the point."""
    below = math.prod(size for _, size in kept)
    for name, size in kept:
        below //= size
        yield f"const long long {name} = point / {below} % {size};"


def _read(load: re.Match[str]) -> str:
    return f"const float {load['var']} = {_plain(load['buffer'])}[{load['address']}];"


def _sizes(text: str) -> list[tuple[str, int]]:
    """`k0:256, k1:4` as pairs."""
    return [(name, int(size)) for name, size in re.findall(r"(\w+):(\d+)", text)]


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)
