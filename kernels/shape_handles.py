"""Which sizes of a problem can be changed on their own so that the module still runs: its handles."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.inputspec import TensorInput, described, parse_inputs
from warpsmith.kernels.problem import Problem, ProblemRef, load_ref

logger = logging.getLogger(__name__)

_MOST_CONSTANTS = 16
"""Module-level integers that are tried; a file with more is full of something other than sizes."""

Shapes = dict[str, tuple[int, ...]]
"""Shape by name: inputs (`in0`), parameters (`param:NAME`) and outputs (`out0`)."""
Dims = frozenset[tuple[str, int]]
"""(name, dimension) pairs."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a size is written: a constant (and the position inside it), or a dimension of an input."""

    constant: str | None = None
    index: int | None = None
    """Position inside a tuple or list constant; of an input otherwise."""
    dim: int = 0


@dataclass(frozen=True, slots=True)
class Handle:
    """Places that hold one size and have to change together."""

    places: tuple[Place, ...]
    size: int
    dims: Dims
    """What follows it."""

    @property
    def outermost(self) -> int:
        """The outermost dimension of inputs and outputs that it changes: 0 is batch-like."""
        return min((dim for name, dim in self.dims if not name.startswith("param:")), default=0)


def handles_of(problem: Problem) -> list[Handle]:
    """Handles of a problem, constants before dimensions that no constant reaches. Empty where nothing can change."""
    base = shapes_of(problem)
    found = list(_constant_handles(problem, base)) if problem.ref.kind == "file" and not problem.ref.inputs else []
    return [*found, *_dimension_handles(problem, base, {pair for handle in found for pair in handle.dims})]


def resized_ref(problem: Problem, sizes: Mapping[Handle, int]) -> ProblemRef:
    """The same problem with other sizes. Nothing is loaded, so nothing says that it runs."""
    ref = problem.ref.model_copy(update={"lifted": None})
    constants = dict(problem.settable())
    overrides = dict(ref.overrides)
    shapes: dict[int, dict[int, int]] = {}
    for handle, size in sizes.items():
        for place in handle.places:
            if place.constant is not None:
                constants[place.constant] = _with_size(constants[place.constant], place.index, size)
                overrides[place.constant] = repr(constants[place.constant])
            elif place.index is not None:
                shapes.setdefault(place.index, {})[place.dim] = size
    if not shapes:
        return ref.model_copy(update={"overrides": overrides})
    if ref.inputs is not None:
        return ref.model_copy(update={"inputs": _described(ref.inputs, shapes)})
    base = shapes_of(problem)
    cut = tuple(_cut(base[f"in{index}"], shapes.get(index)) for index in range(1 + max(shapes)))
    return ref.model_copy(update={"overrides": overrides, "sizes": cut})


def shapes_of(problem: Problem) -> Shapes:
    """Shapes of inputs (a number has none), parameters, and outputs where forward runs without data."""
    instance = problem.build(device="meta", seed=0)
    found = {f"in{index}": _shape(value) for index, value in enumerate(instance.inputs)}
    found |= {f"param:{name}": _shape(value) for name, value in instance.parameters.items()}
    try:
        found |= {f"out{index}": _shape(value) for index, value in enumerate(instance.run())}
    except Exception:  # what only real tensors satisfy is for the trace to say
        logger.debug("%s does not run without data", problem.path)
    return found


def runs(ref: ProblemRef) -> bool:
    """Whether a module at other sizes still computes something, judged without data."""
    try:
        problem = load_ref(ref)
        found = shapes_of(problem)
        outputs = [shape for name, shape in found.items() if name.startswith("out")]
        if not outputs:
            capture(problem)
        return all(0 not in shape for shape in outputs)
    except (UserError, NotYetError):
        return False


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _constant_handles(problem: Problem, base: Shapes) -> Iterator[Handle]:
    """Integers that change inputs or parameters: each by itself, else together with those of the same value."""
    places = list(_integers(problem.settable()))[:_MOST_CONSTANTS]
    stuck: dict[int, list[tuple[Place, Dims]]] = {}
    for place, size in places:
        dims = _followers(problem, base, place, size)
        if all(name.startswith("out") for name, _ in dims):
            continue
        handle = Handle((place,), size, dims)
        if runs(resized_ref(problem, {handle: _probe(size)})):
            yield handle
        else:
            stuck.setdefault(size, []).append((place, dims))
    for size, members in stuck.items():
        tied = Handle(tuple(place for place, _ in members), size, frozenset().union(*(dims for _, dims in members)))
        if len(members) > 1 and runs(resized_ref(problem, {tied: _probe(size)})):
            yield tied


def _followers(problem: Problem, base: Shapes, place: Place, size: int) -> Dims:
    """Dimensions that change with a constant; none where the number of inputs or of their dimensions does."""
    trial = resized_ref(problem, {Handle((place,), size, frozenset()): _probe(size)})
    try:
        now = shapes_of(load_ref(trial))
    except UserError:
        return frozenset()
    given = [name for name in base if not name.startswith("out")]
    if [name for name in now if not name.startswith("out")] != given:
        return frozenset()
    if any(len(now[name]) != len(base[name]) for name in given):
        return frozenset()
    common = [name for name in base if name in now and len(now[name]) == len(base[name])]
    return frozenset(
        (name, dim) for name in common for dim in range(len(now[name])) if now[name][dim] != base[name][dim]
    )


def _dimension_handles(problem: Problem, base: Shapes, taken: Set[tuple[str, int]]) -> Iterator[Handle]:
    """Dimensions by themselves, else with their likes: the same place from the right, else all of one size."""
    left = [
        (name, dim, size)
        for name, shape in base.items()
        for dim, size in enumerate(shape)
        if name.startswith("in") and size > 1 and (name, dim) not in taken
    ]

    def from_right(item: tuple[str, int, int]) -> Any:
        name, dim, size = item
        return size, dim - len(base[name])

    keys = (lambda item: item, from_right, lambda item: item[2])
    for key in keys:
        groups: dict[Any, list[tuple[str, int, int]]] = {}
        for item in left:
            groups.setdefault(key(item), []).append(item)
        for members in groups.values():
            size = members[0][2]
            places = tuple(Place(index=int(name[2:]), dim=dim) for name, dim, _ in members)
            handle = Handle(places, size, frozenset((name, dim) for name, dim, _ in members))
            if runs(resized_ref(problem, {handle: _probe(size)})):
                yield handle
                left = [item for item in left if item not in members]


def _integers(constants: Mapping[str, Any]) -> Iterator[tuple[Place, int]]:
    for name, value in constants.items():
        if _is_size(value):
            yield Place(constant=name), value
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                if _is_size(item):
                    yield Place(constant=name, index=index), item


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 1


def _probe(size: int) -> int:
    """Another size, smaller so that it is no dearer, but never 1, which would broadcast."""
    return size - 1 if size > 2 else size + 1


def _with_size(value: Any, index: int | None, size: int) -> Any:
    if index is None:
        return size
    items = [size if place == index else item for place, item in enumerate(value)]
    return tuple(items) if isinstance(value, tuple) else items


def _cut(shape: tuple[int, ...], changed: Mapping[int, int] | None) -> tuple[int, ...] | None:
    if changed is None:
        return None
    return tuple(changed.get(dim, size) for dim, size in enumerate(shape))


def _described(text: str, shapes: Mapping[int, Mapping[int, int]]) -> str:
    """An input description with other sizes."""
    items: list[TensorInput | int | float] = []
    for index, item in enumerate(parse_inputs(text)):
        if isinstance(item, TensorInput) and index in shapes:
            item = TensorInput(item.dtype, _cut(item.shape, shapes[index]) or item.shape)
        items.append(item)
    return described(items)
