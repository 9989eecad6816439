"""Owns the rendering of regions into C++ text: types, parameters, indices, statements, monoids, helpers."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from warpsmith.kernels.indexing import Algebra, Expr
from warpsmith.kernels.lowering.device_math import uses_math
from warpsmith.kernels.region import Axis, Line, Load, Reduction, Region, Store

STORAGE_TYPES = {
    "float32": "float", "float64": "double", "float16": "f16", "bfloat16": "bf16", "int64": "long long",
    "int32": "int", "int16": "short", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
}  # fmt: skip
COMPUTE_TYPES = {
    "float32": "float", "float64": "double", "float16": "float", "bfloat16": "float", "int64": "long long",
    "int32": "int", "int16": "int", "int8": "int", "uint8": "int", "bool": "bool",
}  # fmt: skip
ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1,
}  # fmt: skip
NARROW_LIMIT = 2**31 - 2**17
"""Bound of 32-bit indices; the margin lets a tile of up to 2^16 elements overhang without overflow."""

_MONOIDS = {
    "sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "any": "Any", "all": "All", "argmax": "ArgMax",
    "argmin": "ArgMin",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: the launch-plan name `ref`, its C++ identifier and its declaration."""

    ref: str
    name: str
    declaration: str


def c_name(ref: str) -> str:
    """C++ identifier of a launch-plan name: `in0` -> `in0`, `param:fc.weight` -> `param_fc_weight`."""
    return re.sub(r"\W", "_", ref)


def scalar_ctype(dtype: str) -> str:
    """C++ type of a Python number passed by value: `double` for floating dtypes, else `long long`."""
    return "double" if dtype.startswith(("float", "bfloat")) else "long long"


def compute_ctype(load: Load) -> str:
    """C++ type of a load's variable. A Python number takes part as `float`, the region's compute type."""
    return "float" if load.address is None else COMPUTE_TYPES[load.dtype]


def parameters(
    loads: Iterable[Load], stores: Iterable[Store], scratch: Mapping[str, str] | None = None
) -> tuple[Parameter, ...]:
    """Kernel parameters in order of first use: loads, stores, scratch buffers (name -> C++ element type)."""
    found: dict[str, str] = {}
    for load in loads:
        if load.address is None:
            found.setdefault(load.buffer, f"{scalar_ctype(load.dtype)} {{}}")
        else:
            found.setdefault(load.buffer, f"const {STORAGE_TYPES[load.dtype]}* __restrict__ {{}}")
    for store in stores:
        found[store.buffer] = f"{STORAGE_TYPES[store.dtype]}* __restrict__ {{}}"
    for name, ctype in (scratch or {}).items():
        found[name] = f"{ctype}* __restrict__ {{}}"
    names = _unique_names(tuple(found))
    return tuple(Parameter(ref, names[ref], form.format(names[ref])) for ref, form in found.items())


def _unique_names(refs: tuple[str, ...]) -> dict[str, str]:
    names: dict[str, str] = {}
    for ref in refs:
        name, count = c_name(ref), 1
        while name in names.values():
            count += 1
            name = f"{c_name(ref)}_{count}"
        names[ref] = name
    return names


def signature(found: Iterable[Parameter]) -> str:
    """Text of a kernel's parameter list, without parentheses."""
    return ", ".join(parameter.declaration for parameter in found)


def names_of(found: Iterable[Parameter]) -> dict[str, str]:
    """C++ identifier by launch-plan name."""
    return {parameter.ref: parameter.name for parameter in found}


def extent(expr: Expr, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Bounds of an index expression over axes of the given sizes."""
    return Algebra(sizes).bounds(expr)


def index_ctype(region: Region) -> str:
    """`int` if all touched offsets and the iteration count stay below NARROW_LIMIT, else `long long`."""
    sizes = {axis.name: axis.size for axis in (*region.kept, *region.reduced)}
    reach = region.kept_size * region.reduced_size
    addresses = [access.address for access in region.loads] + [access.address for access in region.stores]
    for address in addresses:
        if address is not None:
            reach = max(reach, *map(abs, extent(address, sizes)))
    return "int" if reach < NARROW_LIMIT else "long long"


def render_lines(lines: Iterable[Line]) -> str:
    """The statement list of a code slot's default text."""
    return "\n".join(f"const {line.ctype} {line.var} = {line.text};" for line in lines)


def decode_axes(axes: tuple[Axis, ...], flat: str, ctype: str, *, wanted: Container[str] | None = None) -> str:
    """Statements that recover axis variables (all, or those `wanted`) from a row-major index called `flat`.

    Division is by constants, so the compiler turns it into multiplications.
    """
    lines, stride = [], 1
    unsigned, suffix = ("unsigned int", "u") if ctype == "int" else ("unsigned long long", "ull")
    for position, axis in reversed(list(enumerate(axes))):
        quotient = f"{flat}" if stride == 1 else f"({unsigned}){flat} / {stride}{suffix}"
        if position > 0:
            quotient = f"({unsigned})({quotient}) % {axis.size}{suffix}"
        if wanted is None or axis.name in wanted:
            lines.append(f"const {ctype} {axis.name} = ({ctype})({quotient});")
        stride *= axis.size
    return "\n".join(reversed(lines))


def load_text(load: Load, names: Mapping[str, str], ctype: str, *, hint: str = "hint_default") -> str:
    """Expression of one scalar read in the load's compute type, guarded by its predicate."""
    if load.address is None:
        return f"static_cast<{compute_ctype(load)}>({names[load.buffer]})"
    text = f"to_compute(load_one<{hint}>({names[load.buffer]} + ({load.address.c_text(ctype)})))"
    if load.predicate is None:
        return text
    return f"(({load.predicate}) ? {text} : static_cast<{compute_ctype(load)}>({load.fill}))"


def load_line(load: Load, names: Mapping[str, str], ctype: str, *, hint: str = "hint_default") -> str:
    """Statement `const T var = read;`."""
    return f"const {compute_ctype(load)} {load.var} = {load_text(load, names, ctype, hint=hint)};"


def store_line(store: Store, names: Mapping[str, str], ctype: str, *, hint: str = "hint_default") -> str:
    """Statement that converts and writes one element."""
    storage = STORAGE_TYPES[store.dtype]
    where = f"{names[store.buffer]} + ({store.address.c_text(ctype)})"
    return f"store_one<{hint}>({where}, Storage<{storage}>::of({store.var}));"


def is_arg(reduction: Reduction) -> bool:
    """Whether the reduction yields a position."""
    return reduction.kind.startswith("arg")


def monoid(reduction: Reduction, position_ctype: str, operand_ctype: str | None = None) -> str:
    """C++ monoid type (prelude part `reduce`) of a reduction; positions are held in `position_ctype`.

    The type offers `State`, `identity()`, `lift(x, position)`, `combine(a, b)`, `result(state)`. An arg kind
    also needs the type of its operand (`value_ctypes(region)[reduction.operand]`).
    """
    name = _MONOIDS[reduction.kind]
    if is_arg(reduction):
        return f"{name}<{operand_ctype or 'float'}, {position_ctype}>"
    return f"{name}<{reduction.ctype}>"


def result_ctype(reduction: Reduction) -> str:
    """C++ type of the reduced value: `long long` for positions."""
    return "long long" if is_arg(reduction) else reduction.ctype


def state_bytes(reduction: Reduction) -> int:
    """Upper bound of the bytes of one monoid state."""
    if is_arg(reduction):
        return 16
    return {"float": 4, "int": 4, "bool": 1}.get(reduction.ctype, 8)


def value_ctypes(region: Region) -> dict[str, str]:
    """C++ type of every named value of a region: loads, lines and reductions."""
    types = {load.var: compute_ctype(load) for load in region.loads}
    for stage in region.rounds:
        types |= {line.var: line.ctype for line in (*stage.lines, *stage.finish)}
        types |= {reduction.var: result_ctype(reduction) for reduction in stage.reductions}
    return types | {line.var: line.ctype for line in region.post}


@cache
def _prelude_parts() -> dict[str, str]:
    files = [resources.files("warpsmith.kernels").joinpath(name) for name in ("prelude.cu", "device_math.cu")]
    found: dict[str, str] = {}
    for file in files:
        pieces = re.split(r"^//@part (\w+)\n", file.read_text(), flags=re.MULTILINE)
        found |= dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return found


def part(name: str) -> str:
    """One part of `prelude.cu` or `device_math.cu`."""
    return _prelude_parts()[name]


def prelude(*parts: str, lines: Iterable[Line] = ()) -> str:
    """Shared device helpers: `memory` (hinted vector access, types), `reduce` (monoids, warp, block), and `math_units`
    and `math` (functions of torch) where one of the `lines` calls them."""
    if any(uses_math(line.text) for line in lines):
        parts = (*parts, "math_units", "math")
    return "\n".join(part(name).rstrip("\n") for name in ("always", *parts))
