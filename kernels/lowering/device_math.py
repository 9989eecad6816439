"""What functions cost on the device, and how those of `device_math.cu` are written without it.

Figures are instructions of an sm_90 cubin for each element, of them results of the special-function unit, as
`benchmarks/device_math.py` counts them (docs/results/device_math.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions for one element, and how many of them go to the special-function unit."""

    instructions: int
    special: int


COSTS: dict[str, Work] = {
    "/": Work(15, 1),
    "sqrtf": Work(15, 1),
    "rsqrtf": Work(4, 1),
    "expf": Work(8, 1),
    "exp2f": Work(4, 1),
    "expm1f": Work(28, 1),
    "logf": Work(25, 0),
    "log2f": Work(27, 0),
    "log10f": Work(26, 0),
    "log1pf": Work(30, 0),
    "sinf": Work(34, 0),
    "cosf": Work(35, 0),
    "tanf": Work(30, 1),
    "asinf": Work(22, 1),
    "acosf": Work(23, 1),
    "atanf": Work(18, 1),
    "atan2f": Work(46, 1),
    "sinhf": Work(23, 2),
    "coshf": Work(15, 2),
    "tanhf": Work(15, 2),
    "asinhf": Work(42, 2),
    "acoshf": Work(43, 1),
    "atanhf": Work(38, 1),
    "erff": Work(22, 1),
    "erfcf": Work(46, 3),
    "erfinvf": Work(23, 2),
    "lgammaf": Work(170, 2),
    "hypotf": Work(22, 1),
    "powf": Work(76, 1),
    "fmodf": Work(18, 2),
    "math::divide": Work(8, 1),
    "math::divide_by": Work(2, 0),
    "math::reciprocal": Work(7, 1),
    "math::sqrt": Work(4, 1),
    "math::sigmoid": Work(11, 2),
    "math::softplus": Work(18, 1),
    "math::tanh_softplus": Work(14, 2),
    "math::expm1": Work(16, 1),
    "math::one_plus_tanh": Work(4, 2),
    "math::one_plus_erf": Work(13, 1),
}
"""Function (or `/` between floats that are no powers of two) -> work. Branches to slow paths count as not taken."""

_PLAIN: dict[str, str] = {
    "divide": "{0} / {1}",
    "divide_by": "{0} / {1}",
    "reciprocal": "1.0f / {0}",
    "sqrt": "sqrtf({0})",
    "sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "softplus": "fmaxf({0}, 0.0f) + log1pf(expf(-fabsf({0})))",
    "tanh_softplus": "tanhf(fmaxf({0}, 0.0f) + log1pf(expf(-fabsf({0}))))",
    "expm1": "expm1f({0})",
    "one_plus_tanh": "1.0f + tanhf({0})",
    "one_plus_erf": "1.0f + erff({0})",
}
_CALL = re.compile(r"(?:math::)?\b[a-z]\w*(?=\()")
_OPERATION = re.compile(r" [*+-] ")
_OWN = re.compile(r"^math::(\w+)\((.*)\)$")


def uses_math(text: str) -> bool:
    """Whether a statement calls a function of `device_math.cu`."""
    return "math::" in text


@lru_cache(maxsize=4096)
def work_of(template: str, ctype: str, flops: int) -> Work:
    """The work of one statement: its functions as in the table, else an instruction for each operation."""
    found = [COSTS[name] for name in _CALL.findall(template) if name in COSTS]
    if ctype == "float" and " / " in template:
        found.append(COSTS["/"])
    plain = len(_OPERATION.findall(template)) if found else max(flops, 1)
    return Work(plain + sum(work.instructions for work in found), sum(work.special for work in found))


def plain(text: str) -> str:
    """A statement's expression in CUDA's own functions, for who writes a kernel without `device_math.cu`."""
    found = _OWN.match(text)
    if found is None:
        return text
    return _PLAIN[found[1]].format(*found[2].split(", "))
