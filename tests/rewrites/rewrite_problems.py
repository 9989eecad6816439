"""Problem files drawn at random in which a rewrite holds, and ones in which none does."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import torch

from warpsmith.kernels.problem import Problem, load_problem

Text = tuple[str, str, str]
"""Constructor, forward and input of a module."""


def problem(folder: Path, text: Text) -> Problem:
    """The problem of a module."""
    made, forward, inputs = (part.replace("\n", "\n        ") for part in text)
    path = folder / f"p{len(list(folder.iterdir()))}.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {made}\n\n"
        f"    def forward(self, x):\n        {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return load_problem(str(path))


def values_of(loaded: Problem, seed: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Inputs and parameters in float64: parameters of both signs, running statistics far from their defaults."""
    built = loaded.build(device="cpu", seed=seed)
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, held in built.parameters.items():
        drawn = torch.randn(held.shape, generator=generator, dtype=torch.float64)
        parameters[name] = drawn.abs() + 0.3 if name.endswith("running_var") else drawn
    return [x.double() for x in built.inputs], parameters


def steps(draw: random.Random, channels: int, rank: int) -> tuple[str, str]:
    """Constructor and forward of some affine steps, one value a channel, behind `y` with `rank` dims after it."""
    shape = f"{channels}{', 1' * rank}"
    known = {
        "s": (f"self.s = nn.Parameter(torch.randn({shape}))", "y = y * self.s"),
        "t": (f"self.t = nn.Parameter(torch.randn({shape}))", "y = y - self.t"),
        "u": ("self.u = nn.Parameter(torch.randn(1))", "y = self.u + y"),
        "v": ("self.v = nn.Parameter(torch.randn(()))", "y = y / self.v"),
        "n": (f"self.n = nn.BatchNorm{max(rank, 1)}d({channels})", "y = self.n(y)"),
        "number": ("pass", "y = (y * 1.5 + 0.25) / 3"),
        "turned": ("pass", "y = 2 - y"),
        "minus": (f"self.w = nn.Parameter(torch.randn({shape}))", "y = self.w - -y"),
    }
    chosen = draw.sample(sorted(known), draw.randint(0, 3))
    return "\n".join(["pass", *(known[one][0] for one in chosen)]), "\n".join(known[one][1] for one in chosen)


def linear_sum(draw: random.Random) -> Text:
    rows, inner, columns = (draw.randint(1, 30) for _ in range(3))
    made, after = steps(draw, columns, 0)
    last = draw.choice(["y.sum(1)", "y.sum(1, keepdim=True)", "y.mean(dim=1, keepdim=True)", "y.mean(1) * 2"])
    made += f"\nself.a = nn.Linear({inner}, {columns}, bias={draw.random() < 0.7})"
    return made, f"y = self.a(x)\n{after}\nreturn {last}", f"torch.randn({rows}, {inner})"


def spatial_sum(draw: random.Random) -> Text:
    rank, transposed = draw.randint(1, 3), draw.random() < 0.6
    given, results = draw.randint(1, 5), draw.randint(1, 5)
    most = 3 if transposed or rank < 3 else 2
    taps = [draw.randint(1, most) for _ in range(rank)]
    dilation = [draw.randint(1, 2) for _ in range(rank)]
    stride = [draw.randint(1, 3) if transposed else 1 for _ in range(rank)]
    padding = [
        draw.randint(0, (n - 1) * d) if dim < 2 else 0 for dim, (n, d) in enumerate(zip(taps, dilation, strict=True))
    ]
    more = [draw.randint(0, s - 1) for s in stride]
    made, after = steps(draw, results, rank)
    kind = "ConvTranspose" if transposed else "Conv"
    extra = f", output_padding={tuple(more)}" if transposed else ""
    made += (
        f"\nself.a = nn.{kind}{rank}d({given}, {results}, {tuple(taps)}, stride={tuple(stride)}, "
        f"padding={tuple(padding)}, dilation={tuple(dilation)}, bias={draw.random() < 0.7}{extra})"
    )
    dims = draw.sample(range(2, 2 + rank), draw.randint(1, rank) if rank > 1 else 1)
    last = draw.choice([f"y.sum({dims})", f"y.mean(dim={dims}, keepdim=True)", f"torch.tanh(y.mean({dims}))"])
    sizes = [draw.randint(5, 8) for _ in range(rank)]
    return made, f"y = self.a(x)\n{after}\nreturn {last}", f"torch.randn(2, {given}, {', '.join(map(str, sizes))})"


def pool_fold(draw: random.Random) -> Text:
    rank, transposed = draw.randint(2, 3), draw.random() < 0.5
    groups = 1 if transposed else draw.randint(1, 2)
    given, results = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
    stride, taps, window = draw.randint(1, 2), draw.randint(2, 3), draw.randint(1, 3)
    step = stride * draw.randint(1, 2) if transposed else draw.randint(1, 3)
    padding = draw.randint(0, 1)
    dilation = draw.randint(1, 2) if stride == 1 and window > 1 and not transposed else 1
    extra = f", output_padding={draw.randint(0, stride - 1)}" if transposed else f", groups={groups}"
    made, after = steps(draw, results, rank)
    made += (
        f"\nself.a = nn.{'ConvTranspose' if transposed else 'Conv'}{rank}d({given}, {results}, {taps}, "
        f"stride={stride}, padding={padding}, dilation={dilation}{extra})"
    )
    sizes = [draw.randint(8, 10) for _ in range(rank)]
    last = f"torch.sigmoid(F.avg_pool{rank}d(y, {window}, {step}))"
    return made, f"y = self.a(x)\n{after}\nreturn {last}", f"torch.randn(2, {given}, {', '.join(map(str, sizes))})"


def pool_first(draw: random.Random) -> Text:
    rank = draw.randint(2, 3)
    groups = draw.randint(1, 2)
    given, results = groups * draw.randint(1, 4), groups * draw.randint(1, 4)
    made, after = steps(draw, results, rank)
    made += f"\nself.a = nn.Conv{rank}d({given}, {results}, 1, groups={groups}, bias={draw.random() < 0.5})"
    window, step = draw.randint(1, 3), draw.randint(1, 3)
    sizes = [draw.randint(5, 9) for _ in range(rank)]
    forward = f"y = self.a(torch.relu(x))\n{after}\nreturn F.avg_pool{rank}d(y, {window}, {step})"
    return made, forward, f"torch.randn(2, {given}, {', '.join(map(str, sizes))})"


def fold_affine(draw: random.Random) -> Text:
    rank = draw.randint(0, 3)
    given, results = draw.randint(1, 6), draw.randint(1, 6)
    made, after = steps(draw, results, rank)
    if rank:
        kind = draw.choice(["Conv", "ConvTranspose"])
        made += f"\nself.a = nn.{kind}{rank}d({given}, {results}, 2, stride=2, padding=1, bias={draw.random() < 0.5})"
    else:
        made += f"\nself.a = nn.Linear({given}, {results}, bias={draw.random() < 0.5})"
    norm = f"self.last = nn.BatchNorm{max(rank, 1)}d({results})"
    sizes = "".join(f", {draw.randint(4, 7)}" for _ in range(rank))
    return f"{made}\n{norm}", f"y = self.a(x)\n{after}\nreturn self.last(y)", f"torch.randn(3, {given}{sizes})"


def fold_norms(draw: random.Random) -> Text:
    given, results = draw.randint(2, 5), draw.randint(1, 6)
    made, after = steps(draw, results, 2)
    made += f"\nself.a = nn.Conv2d({given}, {results}, 2, stride={draw.randint(1, 2)}, bias={draw.random() < 0.5})"
    made += f"\nself.n = nn.BatchNorm2d({results})"
    last = draw.choice(["y", "y + z", "z + y"])
    lines = f"z = torch.sin(self.a(x))\ny = self.n(self.a(x))\n{after}\nreturn torch.tanh(torch.relu({last}))"
    return made, lines, f"torch.randn(3, {given}, {draw.randint(4, 7)}, {draw.randint(4, 7)})"


def unit_reductions(draw: random.Random) -> Text:
    rows = draw.randint(1, 9)
    chosen = [draw.choice(["amax", "amin", "sum", "mean", "logsumexp"]) for _ in range(3)]
    lines = "\n".join(f"y = y.{one}(1, keepdim={draw.random() < 0.5})[:, None].flatten(1)" for one in chosen)
    return "pass", f"y = x.sum(1, keepdim=True)\n{lines}\nreturn y", f"torch.randn({rows}, 7)"


def phases(draw: random.Random) -> Text:
    rank, groups = draw.randint(1, 3), draw.randint(1, 2)
    stride, dilation, taps, padding, more = [], [], [], [], []
    for _ in range(rank):
        least, times = draw.randint(1, 3), draw.randint(1, 2)
        either = draw.choice([(least * times, least), (least, least * times), (least, 1)])
        stride.append(either[0])
        dilation.append(either[1])
        taps.append(draw.randint(1, 5))
        padding.append(draw.randint(0, min(2, (taps[-1] - 1) * dilation[-1])))
        more.append(draw.randint(0, max(either) - 1))
    made = (
        f"self.a = nn.ConvTranspose{rank}d({3 * groups}, {4 * groups}, {tuple(taps)}, stride={tuple(stride)}, "
        f"padding={tuple(padding)}, output_padding={tuple(more)}, dilation={tuple(dilation)}, groups={groups}, "
        f"bias={draw.random() < 0.5})"
    )
    sizes = ", ".join(str(draw.randint(3, 6)) for _ in range(rank))
    return made, "return torch.tanh(self.a(x))", f"torch.randn(2, {3 * groups}, {sizes})"


def unit_stride(draw: random.Random) -> Text:
    rank, groups = draw.randint(1, 3), draw.randint(1, 3)
    given, results = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
    taps, dilation = ([draw.randint(1, 3) for _ in range(rank)] for _ in range(2))
    padding = [draw.randint(0, (n - 1) * d) for n, d in zip(taps, dilation, strict=True)]
    made = (
        f"self.a = nn.ConvTranspose{rank}d({given}, {results}, {tuple(taps)}, padding={tuple(padding)}, "
        f"dilation={tuple(dilation)}, groups={groups}, bias={draw.random() < 0.5})"
    )
    last = draw.choice(["y", "torch.tanh(y)", "(y, y.sum(1))"])
    sizes = ", ".join(str(draw.randint(7, 9)) for _ in range(rank))
    return made, f"y = self.a(x)\nreturn {last}", f"torch.randn(2, {given}, {sizes})"


HOLDING: dict[str, Callable[[random.Random], Text]] = {
    made.__name__: made
    for made in (
        linear_sum,
        spatial_sum,
        pool_first,
        pool_fold,
        fold_affine,
        fold_norms,
        unit_reductions,
        unit_stride,
        phases,
    )
}
"""By the name of the rewrite that holds."""

_LINEAR = "self.a = nn.Linear(9, 7)\nself.b = nn.Linear(9, 7, bias=False)\nself.p = nn.Parameter(torch.randn(4, 7))"
_CONV = "self.a = nn.Conv2d(2, 4, 3, stride=2)\nself.b = nn.Conv2d(2, 4, 3)\nself.c = nn.Conv2d(2, 4, 3, groups=2)"
_TURNED = (
    "self.a = nn.ConvTranspose2d(2, 4, 3, stride=2, dilation=3)\n"
    "self.b = nn.ConvTranspose2d(2, 4, 3, stride=3, dilation=2, groups=2)"
)
_ROWS, _IMAGE = "torch.randn(4, 9)", "torch.randn(2, 2, 9, 8)"

LEFT_ALONE: dict[str, Text] = {
    "the product is an output too": (_LINEAR, "y = self.b(x)\nreturn y, y.sum(1)", _ROWS),
    "a step is read twice": (_LINEAR, "y = self.a(x) * 2\nreturn torch.exp(y) * y.sum(1, keepdim=True)", _ROWS),
    "a nonlinear operator": (_LINEAR, "return torch.relu(self.a(x)).sum(1)", _ROWS),
    "a square": (_LINEAR, "y = self.a(x)\nreturn (y * y).sum(1)", _ROWS),
    "a divisor": (_LINEAR, "return (1 / self.a(x)).sum(1)", _ROWS),
    "a maximum": (_LINEAR, "return self.b(x).amax(1)", _ROWS),
    "a sum over rows": (_LINEAR, "return torch.tanh(self.a(x)).sum(0)", _ROWS),
    "a factor each element": (_LINEAR, "return (self.a(x) * self.p).sum(1)", _ROWS),
    "half precision": (f"{_LINEAR}\nself.bfloat16()", "return self.a(x.bfloat16()).sum(1)", _ROWS),
    "a pointwise operator follows": (_LINEAR, "return torch.relu(self.a(x) * 2)", _ROWS),
    "strides in summed dims": (_CONV, "return self.a(x).sum((2, 3))", _IMAGE),
    "groups": (_CONV, "return self.c(x).sum((2, 3))", _IMAGE),
    "a sum over channels": (_CONV, "return self.b(x).sum((1, 2))", _IMAGE),
    "a pool with padding": (_CONV, "return F.avg_pool2d(self.b(x), 2, padding=1)", _IMAGE),
    "a pool that rounds up": (_CONV, "return F.avg_pool2d(self.b(x), 2, ceil_mode=True)", _IMAGE),
    "a pool with its own divisor": (_CONV, "return F.avg_pool2d(self.b(x), 2, divisor_override=3)", _IMAGE),
    "a pool of squares": (_CONV, "y = self.b(x)\nreturn F.avg_pool2d(y * y, 2)", _IMAGE),
    "a greatest value of windows": (_CONV, "return F.max_pool2d(self.b(x), 2)", _IMAGE),
    "strides out of step, and dilation": (_TURNED, "return F.avg_pool2d(self.a(x), 3)", _IMAGE),
    "transposed groups": (_TURNED, "return F.avg_pool2d(self.b(x), 2)", _IMAGE),
    "a transposed convolution cut at its edges": (
        "self.a = nn.ConvTranspose2d(2, 4, 2, stride=3, dilation=2, padding=2)",
        "return torch.relu(self.a(x))",
        _IMAGE,
    ),
    "more than one element": ("pass", "return x.sum(1).exp()", _ROWS),
}
"""What is in the way -> module."""
