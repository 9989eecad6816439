"""Small regions written by hand, each with inputs and what torch says about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch

from warpsmith.kernels.indexing import Expr, Term
from warpsmith.kernels.region import Axis, Level, Line, Load, Reduction, Region, Round, Store

INFINITY = "__int_as_float(0x7f800000)"


@dataclass(frozen=True)
class Case:
    """A region, tensors or numbers for `inN`, and expected tensors for `outN`."""

    name: str
    region: Region
    inputs: dict[str, torch.Tensor | float]
    expected: dict[str, torch.Tensor]
    tolerance: float = 1e-5

    def __repr__(self) -> str:
        return self.name


def line(var: str, text: str, *uses: str, level: Level = "full", ctype: str = "float", axes: bool = False) -> Line:
    return Line(var, ctype, text, level, uses, uses_axes=axes)


def address(axes: Sequence[str], strides: Sequence[int], offset: int = 0) -> Expr:
    """`offset + sum(axis * stride)`, terms sorted by axis as in the normal form."""
    terms = [Term(axis, stride) for axis, stride in zip(axes, strides, strict=True) if stride]
    return Expr(tuple(sorted(terms, key=lambda term: term.axis)), offset)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


@dataclass
class Space:
    """Axes of a tensor shape: those in `dims` are reduced (`r0, r1, ...`), the others kept (`k0, k1, ...`)."""

    shape: tuple[int, ...]
    dims: tuple[int, ...] = ()
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.dims = tuple(d % len(self.shape) for d in self.dims)
        counts = {"k": 0, "r": 0}
        names = []
        for d in range(len(self.shape)):
            kind = "r" if d in self.dims else "k"
            names.append(f"{kind}{counts[kind]}")
            counts[kind] += 1
        self.names = tuple(names)

    def axes(self, kind: str) -> tuple[Axis, ...]:
        pairs = zip(self.names, self.shape, strict=True)
        return tuple(Axis(name, size) for name, size in pairs if name[0] == kind)

    def load(self, var: str, buffer: str, tensor: torch.Tensor, *, level: Level = "full") -> Load:
        """A read of a tensor that broadcasts to the shape."""
        strides = tensor.expand(self.shape).stride()
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Load(var, buffer, dtype, address(self.names, strides), level, tensor.numel())

    def store(self, var: str, buffer: str, tensor: torch.Tensor, *, kept: bool = False) -> Store:
        """A write of a full-shape tensor, or (`kept`) of one over the kept axes alone."""
        names = [name for name in self.names if not kept or name[0] == "k"]
        dtype = str(tensor.dtype).removeprefix("torch.")
        where = address(names, tensor.stride())
        return Store(var, buffer, dtype, where, "kept" if kept else "full", tensor.numel())


def build(
    space: Space,
    loads: Sequence[Load],
    stores: Sequence[Store],
    *,
    rounds: Sequence[Round] = (),
    post: Sequence[Line] = (),
    name: str = "",
) -> Region:
    moved = sum(load.numel for load in loads) + sum(store.numel for store in stores)
    return Region(
        kept=space.axes("k"),
        reduced=space.axes("r"),
        loads=tuple(loads),
        rounds=tuple(rounds),
        post=tuple(post),
        stores=tuple(stores),
        flops=prod(space.shape),
        floor_bytes=4 * moved,
        source_ops=(name,),
    )


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


Pointwise = tuple[list[Line], Callable[[torch.Tensor], torch.Tensor]]

POINTWISE: dict[str, Pointwise] = {
    "relu": ([line("y", "x < 0.0f ? 0.0f : x", "x")], torch.relu),
    "gelu": (
        [
            line("t0", "x * 0.70710677f", "x"),
            line("t1", "erff(t0)", "t0"),
            line("t2", "x * 0.5f", "x"),
            line("y", "t2 * (1.0f + t1)", "t1", "t2"),
        ],
        torch.nn.functional.gelu,
    ),
    "sigmoid": ([line("y", "1.0f / (1.0f + expf(-x))", "x")], torch.sigmoid),
}


def pointwise(op: str, x: torch.Tensor) -> Case:
    """One input of any strides; the output has them too if they are dense, as in torch."""
    lines, function = POINTWISE[op]
    space, expected = Space(tuple(x.shape)), function(x)
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected)], post=lines, name=op)
    return Case(f"{op}{list(x.shape)}{list(x.stride())}", region, {"in0": x}, {"out0": expected})


def scaled_add(x: torch.Tensor, bias: torch.Tensor, scale: float) -> Case:
    """`x * scale + bias` with a Python number and a bias that broadcasts; second output `x - bias`."""
    space = Space(tuple(x.shape))
    expected = {"out0": x * scale + bias, "out1": x - bias}
    loads = [
        space.load("x", "in0", x),
        space.load("b", "in1", bias),
        Load("s", "in2", "float64", None, "scalar", 1),
    ]
    post = [
        line("t0", "x * s", "x", "s"),
        line("y", "t0 + b", "t0", "b"),
        line("z", "x - b", "x", "b"),
    ]
    stores = [space.store(var, ref, expected[ref]) for var, ref in (("y", "out0"), ("z", "out1"))]
    region = build(space, loads, stores, post=post, name="scaled_add")
    name = f"scaled_add{list(x.shape)}+{list(bias.shape)}"
    return Case(name, region, {"in0": x, "in1": bias, "in2": scale}, expected)


def lower_triangle(rows: int, columns: int) -> Case:
    """`tril`: a value that depends on the position."""
    x, space = random(rows, columns), Space((rows, columns))
    expected = x.tril()
    post = [line("y", "k1 > k0 ? 0.0f : x", "x", axes=True)]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected)], post=post, name="tril")
    return Case(f"tril[{rows}, {columns}]", region, {"in0": x}, {"out0": expected})


def padded(rows: int, columns: int, pad: int) -> Case:
    """Constant padding along the inner axis: a guarded read."""
    x, width = random(rows, columns), columns + 2 * pad
    expected = torch.nn.functional.pad(x, (pad, pad), value=1.5)
    space = Space((rows, width))
    load = Load("x", "in0", "float32", address(("k0", "k1"), (columns, 1), -pad), "full", x.numel(),
                predicate=f"k1 >= {pad} && k1 < {columns + pad}", fill="1.5f")  # fmt: skip
    region = build(space, [load], [space.store("x", "out0", expected)], name="pad")
    return Case(f"pad[{rows}, {columns}, {pad}]", region, {"in0": x}, {"out0": expected})


def _reduced(x: torch.Tensor, dims: Sequence[int]) -> Space:
    return Space(tuple(x.shape), tuple(dims))


def _suffix(x: torch.Tensor, dims: Sequence[int]) -> str:
    return f"{list(x.shape)}/{list(dims)}"


def fold(kind: str, x: torch.Tensor, dims: Sequence[int]) -> Case:
    """`sum`, `max`, `min` or `prod` of the input."""
    space = _reduced(x, dims)
    functions = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}
    expected = functions[kind](x, dim=tuple(dims)) if kind in functions else x.prod(dim=dims[0])
    rounds = [Round((), (Reduction("y", kind, "x"),), ())]  # type: ignore[arg-type]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected, kept=True)],
                   rounds=rounds, name=kind)  # fmt: skip
    return Case(f"{kind}{_suffix(x, dims)}", region, {"in0": x}, {"out0": expected})


def position(kind: str, x: torch.Tensor, dim: int) -> Case:
    """`argmax` or `argmin`."""
    space = _reduced(x, (dim,))
    expected = (torch.argmax if kind == "argmax" else torch.argmin)(x, dim=dim)
    rounds = [Round((), (Reduction("y", kind, "x"),), ())]  # type: ignore[arg-type]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected, kept=True)],
                   rounds=rounds, name=kind)  # fmt: skip
    return Case(f"{kind}{_suffix(x, [dim])}", region, {"in0": x}, {"out0": expected}, 0.0)


def truths(x: torch.Tensor, dims: Sequence[int]) -> Case:
    """`any`, `all` and the count of positive elements between two sums: partials of 1, 4 and 8 bytes."""
    space, sizes = _reduced(x, dims), tuple(dims)
    positive = x > 0
    expected = {
        "out0": x.sum(sizes), "out1": positive.sum(sizes), "out2": x.square().sum(sizes),
        "out3": positive.any(sizes), "out4": positive.all(sizes),
    }  # fmt: skip
    lines = (line("up", "x > 0.0f", "x", ctype="bool"), line("q", "x * x", "x"))
    reductions = (
        Reduction("s", "sum", "x"), Reduction("n", "sum", "up", "long long"), Reduction("t", "sum", "q"),
        Reduction("some", "any", "up", "bool"), Reduction("every", "all", "up", "bool"),
    )  # fmt: skip
    stores = [
        space.store(reduction.var, ref, expected[ref], kept=True)
        for reduction, ref in zip(reductions, expected, strict=True)
    ]
    region = build(space, [space.load("x", "in0", x)], stores, rounds=[Round(lines, reductions, ())], name="truths")
    return Case(f"truths{_suffix(x, dims)}", region, {"in0": x}, expected, 1e-4)


def truth(kind: str, x: torch.Tensor, dims: Sequence[int]) -> Case:
    """`any`, `all`, `max` or the count (`sum`) of `x > 0`: one partial of 1 or of 8 bytes."""
    space = _reduced(x, dims)
    functions = {"any": torch.any, "all": torch.all, "max": torch.amax, "sum": torch.sum}
    expected = functions[kind](x > 0, dim=tuple(dims))
    ctype = "long long" if kind == "sum" else "bool"
    lines = (line("up", "x > 0.0f", "x", ctype="bool"),)
    rounds = [Round(lines, (Reduction("y", kind, "up", ctype),), ())]  # type: ignore[arg-type]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected, kept=True)],
                   rounds=rounds, name=kind)  # fmt: skip
    return Case(f"{kind} of truths{_suffix(x, dims)}", region, {"in0": x}, {"out0": expected}, 0.0)


def mean(x: torch.Tensor, dims: Sequence[int]) -> Case:
    """Mean, with a finish line."""
    space = _reduced(x, dims)
    count = prod(x.shape[d] for d in dims)
    expected = x.mean(dim=tuple(dims))
    finish = (line("y", f"total / {count}.0f", "total", level="kept"),)
    rounds = [Round((), (Reduction("total", "sum", "x"),), finish)]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected, kept=True)],
                   rounds=rounds, name="mean")  # fmt: skip
    return Case(f"mean{_suffix(x, dims)}", region, {"in0": x}, {"out0": expected})


def softmax(x: torch.Tensor, dim: int) -> Case:
    """Two rounds (maximum, sum of exponentials) and a post stage."""
    space, expected = _reduced(x, (dim,)), x.softmax(dim)
    rounds = [
        Round((), (Reduction("top", "max", "x"),), ()),
        Round(
            (line("d0", "x - top", "x", "top"), line("e0", "expf(d0)", "d0")),
            (Reduction("total", "sum", "e0"),),
            (),
        ),
    ]
    post = [
        line("d1", "x - top", "x", "top"),
        line("e1", "expf(d1)", "d1"),
        line("y", "e1 / total", "e1", "total"),
    ]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected)], rounds=rounds,
                   post=post, name="softmax")  # fmt: skip
    return Case(f"softmax{_suffix(x, [dim])}", region, {"in0": x}, {"out0": expected})


def layer_norm(x: torch.Tensor, dims: Sequence[int], *, affine: bool = True) -> Case:
    """Two rounds (mean, centred second moment); weight and bias over the reduced axes."""
    space = _reduced(x, dims)
    count = prod(x.shape[d] for d in space.dims)
    shape = [size if d in space.dims else 1 for d, size in enumerate(x.shape)]
    weight, bias = random(*shape, seed=1), random(*shape, seed=2)
    centred = x - x.mean(tuple(space.dims), keepdim=True)
    expected = centred * (centred.square().mean(tuple(space.dims), keepdim=True) + 1e-5).rsqrt()
    if affine:
        expected = expected * weight + bias
    rounds = [
        Round((), (Reduction("s0", "sum", "x"),), (line("m", f"s0 / {count}.0f", "s0", level="kept"),)),
        Round(
            (line("c0", "x - m", "x", "m"), line("q0", "c0 * c0", "c0")),
            (Reduction("s1", "sum", "q0"),),
            (line("r", f"rsqrtf(s1 / {count}.0f + 1e-05f)", "s1", level="kept"),),
        ),
    ]
    post = [line("c1", "x - m", "x", "m"), line("n", "c1 * r", "c1", "r")]
    loads, inputs = [space.load("x", "in0", x)], {"in0": x}
    if affine:
        loads += [space.load("w", "param:weight", weight, level="reduced"),
                  space.load("b", "param:bias", bias, level="reduced")]  # fmt: skip
        post.append(line("y", "n * w + b", "n", "w", "b"))
        inputs |= {"param:weight": weight, "param:bias": bias}
    store = space.store("y" if affine else "n", "out0", expected.contiguous())
    region = build(space, loads, [store], rounds=rounds, post=post, name="layer_norm")
    return Case(f"layer_norm{_suffix(x, dims)}", region, dict(inputs), {"out0": expected.contiguous()}, 5e-5)


def rms_norm(x: torch.Tensor, dim: int) -> Case:
    """One round and a post stage."""
    space = _reduced(x, (dim,))
    expected = x / (x.square().mean(dim, keepdim=True) + 1e-5).sqrt()
    finish = (line("r", f"sqrtf(s / {x.shape[dim]}.0f + 1e-05f)", "s", level="kept"),)
    rounds = [Round((line("q", "x * x", "x"),), (Reduction("s", "sum", "q"),), finish)]
    region = build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected)], rounds=rounds,
                   post=[line("y", "x / r", "x", "r")], name="rms_norm")  # fmt: skip
    return Case(f"rms_norm{_suffix(x, [dim])}", region, {"in0": x}, {"out0": expected})


def mse(x: torch.Tensor, y: torch.Tensor) -> Case:
    """Mean squared error over everything: no kept axis."""
    space = Space(tuple(x.shape), tuple(range(x.ndim)))
    expected = torch.nn.functional.mse_loss(x, y)
    finish = (line("z", f"s / {x.numel()}.0f", "s", level="scalar"),)
    lines = (line("d", "x - y", "x", "y"), line("q", "d * d", "d"))
    rounds = [Round(lines, (Reduction("s", "sum", "q"),), finish)]
    loads = [space.load("x", "in0", x), space.load("y", "in1", y)]
    region = build(space, loads, [space.store("z", "out0", expected, kept=True)], rounds=rounds, name="mse")
    return Case(f"mse{list(x.shape)}", region, {"in0": x, "in1": y}, {"out0": expected})


def special() -> torch.Tensor:
    """Rows with NaN and infinities."""
    x = random(7, 1501)
    x[1, 5], x[2, 9], x[3] = float("nan"), float("inf"), -float("inf")
    return x


def half_softmax(x: torch.Tensor) -> Case:
    """A softmax of halves, computed in floats."""
    case = softmax(x.to(torch.float32), 1)
    (load,), (store,) = case.region.loads, case.region.stores
    name = str(x.dtype).removeprefix("torch.")
    region = replace(case.region, loads=(replace(load, dtype=name),), stores=(replace(store, dtype=name),))
    wide = case.inputs["in0"]
    assert isinstance(wide, torch.Tensor)
    expected = {"out0": case.expected["out0"].to(x.dtype)}
    return Case(f"softmax {name}", region, {"in0": wide.to(x.dtype)}, expected, tolerance=8e-3)
