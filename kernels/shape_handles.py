"""Which sizes of a problem can be changed on their own so that the module still runs: its handles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.inputspec import TensorInput, described, parse_inputs
from warpsmith.kernels.problem import Problem, ProblemRef, load_ref

_MOST_CONSTANTS = 16
"""Module-level integers that are tried; a file with more is full of something other than sizes."""

Shapes = tuple[tuple[int, ...] | None, ...]
"""Shape of each flat input, None for a number."""


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
    dims: frozenset[tuple[int, int]]
    """(input, dimension) pairs that follow it."""

    @property
    def outermost(self) -> int:
        """The outermost dimension that it changes: 0 is batch-like."""
        return min(dim for _, dim in self.dims)


def handles_of(problem: Problem) -> list[Handle]:
    """Handles of a problem, constants before dimensions that no constant reaches. Empty where nothing can change."""
    base = input_shapes(problem)
    found = list(_constant_handles(problem, base)) if problem.ref.kind == "file" and not problem.ref.inputs else []
    reached = {place for handle in found for place in handle.dims}
    return [*found, *_dimension_handles(problem, base, reached)]


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
    cut = tuple(_cut(shape, shapes.get(place)) for place, shape in enumerate(input_shapes(problem)))
    return ref.model_copy(update={"overrides": overrides, "sizes": cut})


def input_shapes(problem: Problem) -> Shapes:
    """Shapes of the flat inputs."""
    inputs = problem.build(device="meta", seed=0).inputs
    return tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else None for value in inputs)


def runs(ref: ProblemRef) -> bool:
    """Whether a module at other sizes still computes something, judged without data."""
    try:
        problem = load_ref(ref)
        instance = problem.build(device="meta", seed=0)
        try:
            outputs = instance.run()
        except Exception:  # what only real tensors satisfy is for the trace to say
            capture(problem)
            return True
        return bool(outputs) and all(output.numel() for output in outputs)
    except (UserError, NotYetError):
        return False


def _constant_handles(problem: Problem, base: Shapes) -> Iterator[Handle]:
    """Integers that change the inputs' shapes: each by itself, else together with those of the same value."""
    places = list(_integers(problem.settable()))[:_MOST_CONSTANTS]
    alone: list[Handle] = []
    stuck: dict[int, list[tuple[Place, frozenset[tuple[int, int]]]]] = {}
    for place, size in places:
        dims = _followers(problem, base, (place,), size)
        if not dims:
            continue
        handle = Handle((place,), size, dims)
        if runs(resized_ref(problem, {handle: _probe(size)})):
            alone.append(handle)
        else:
            stuck.setdefault(size, []).append((place, dims))
    yield from alone
    for size, members in stuck.items():
        tied = Handle(tuple(place for place, _ in members), size, frozenset().union(*(dims for _, dims in members)))
        if len(members) > 1 and runs(resized_ref(problem, {tied: _probe(size)})):
            yield tied


def _followers(problem: Problem, base: Shapes, places: tuple[Place, ...], size: int) -> frozenset[tuple[int, int]]:
    """Dimensions of inputs that change with a constant; none where the inputs change their kind with it."""
    trial = resized_ref(problem, {Handle(places, size, frozenset()): _probe(size)})
    try:
        shapes = input_shapes(load_ref(trial))
    except UserError:
        return frozenset()
    if [None if shape is None else len(shape) for shape in shapes] != [
        None if shape is None else len(shape) for shape in base
    ]:
        return frozenset()
    return frozenset(
        (index, dim)
        for index, (now, before) in enumerate(zip(shapes, base, strict=True))
        if now is not None and before is not None
        for dim in range(len(now))
        if now[dim] != before[dim]
    )


def _dimension_handles(problem: Problem, base: Shapes, reached: Iterable[tuple[int, int]]) -> Iterator[Handle]:
    """Dimensions by themselves, else with their likes: the same place from the right, else all of one size."""
    taken = set(reached)
    left = [
        (index, dim, size)
        for index, shape in enumerate(base)
        for dim, size in enumerate(shape or ())
        if size > 1 and (index, dim) not in taken
    ]

    def from_right(item: tuple[int, int, int]) -> Any:
        index, dim, size = item
        return size, dim - len(base[index] or ())

    keys = (lambda item: item, from_right, lambda item: item[2])
    for key in keys:
        groups: dict[Any, list[tuple[int, int, int]]] = {}
        for item in left:
            groups.setdefault(key(item), []).append(item)
        for members in groups.values():
            size = members[0][2]
            places = tuple(Place(index=index, dim=dim) for index, dim, _ in members)
            handle = Handle(places, size, frozenset((index, dim) for index, dim, _ in members))
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


def _cut(shape: tuple[int, ...] | None, changed: Mapping[int, int] | None) -> tuple[int, ...] | None:
    if shape is None or changed is None:
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
