"""Which sizes of a problem can be changed on their own so that the module still runs: its handles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from warpsmith.kernels.capture import can_be_called, capture
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.inputspec import TensorInput, described, parse_inputs
from warpsmith.kernels.problem import Instance, Problem, ProblemRef, load_ref
from warpsmith.kernels.recurrent import steps_left_out

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


_found: WeakKeyDictionary[Problem, tuple[Shapes, tuple[Handle, ...]]] = WeakKeyDictionary()
_finding = threading.Lock()


def handles_of(problem: Problem) -> list[Handle]:
    """Handles of a problem, constants before dimensions that no constant reaches. Empty where nothing can change."""
    return list(_once(problem)[1])


def declared_shapes(problem: Problem) -> Shapes:
    """As `shapes_of`, found together with the handles."""
    return _once(problem)[0]


def _once(problem: Problem) -> tuple[Shapes, tuple[Handle, ...]]:
    """Looked for once for a problem: each size that is tried builds and runs the module without data."""
    with _finding:
        if problem not in _found:
            base, trials = shapes_of(problem), _Trials()
            lone = problem.ref.kind == "file" and not problem.ref.inputs
            found = list(_constant_handles(problem, base, trials)) if lone else []
            taken = {pair for handle in found for pair in handle.dims}
            _found[problem] = base, (*found, *_dimension_handles(problem, base, taken, trials))
        return _found[problem]


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
    base = _given(problem.build(device="meta", seed=0))
    cut = tuple(_cut(base[f"in{index}"], shapes.get(index)) for index in range(1 + max(shapes)))
    return ref.model_copy(update={"overrides": overrides, "sizes": cut})


def shapes_of(problem: Problem) -> Shapes:
    """Shapes of inputs (a number has none), parameters, and outputs where forward runs without data."""
    instance = problem.build(device="meta", seed=0)
    found = _given(instance)
    try:
        with steps_left_out(instance.module):
            found |= {f"out{index}": _shape(value) for index, value in enumerate(instance.run())}
    except Exception:  # what only real tensors satisfy is for the trace to say
        logger.debug("%s does not run without data", problem.path)
    return found


@dataclass(slots=True)
class _Trials:
    """A module at other sizes, each tried once."""

    _known: dict[str, Shapes | None] = field(default_factory=dict)
    _traced: dict[str, bool] = field(default_factory=dict)
    """Of those whose outputs are not known."""

    def shapes(self, ref: ProblemRef) -> Shapes | None:
        """As `shapes_of`; None where the module cannot be built."""
        key = ref.model_dump_json()
        if key not in self._known:
            try:
                self._known[key] = shapes_of(load_ref(ref))
            except (UserError, NotYetError):
                self._known[key] = None
        return self._known[key]

    def runs(self, ref: ProblemRef) -> bool:
        """Whether a module at other sizes still computes something, judged without data."""
        found = self.shapes(ref)
        if found is None:
            return False
        if not any(name.startswith("out") for name in found):
            key = ref.model_dump_json()
            if key not in self._traced:
                self._traced[key] = _can_be_traced(ref)
            return self._traced[key]
        return all(0 not in shape for name, shape in found.items() if name.startswith("out"))


def _can_be_traced(ref: ProblemRef) -> bool:
    try:
        problem = load_ref(ref)
        if not can_be_called(problem):
            return False
        capture(problem)
    except (UserError, NotYetError):
        return False
    return True


def _given(instance: Instance) -> Shapes:
    found = {f"in{index}": _shape(value) for index, value in enumerate(instance.inputs)}
    return found | {f"param:{name}": _shape(value) for name, value in instance.parameters.items()}


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _constant_handles(problem: Problem, base: Shapes, trials: _Trials) -> Iterator[Handle]:
    """Integers that change inputs or parameters: each by itself, else together with those of the same value."""
    places = list(_integers(problem.settable()))[:_MOST_CONSTANTS]
    stuck: dict[int, list[tuple[Place, Dims]]] = {}
    for place, size in places:
        dims = _followers(problem, base, place, size, trials)
        if all(name.startswith("out") for name, _ in dims):
            continue
        handle = Handle((place,), size, dims)
        if trials.runs(resized_ref(problem, {handle: _probe(size)})):
            yield handle
        else:
            stuck.setdefault(size, []).append((place, dims))
    for size, members in stuck.items():
        tied = Handle(tuple(place for place, _ in members), size, frozenset().union(*(dims for _, dims in members)))
        if len(members) > 1 and trials.runs(resized_ref(problem, {tied: _probe(size)})):
            yield tied


def _followers(problem: Problem, base: Shapes, place: Place, size: int, trials: _Trials) -> Dims:
    """Dimensions that change with a constant; none where the number of inputs or of their dimensions does."""
    now = trials.shapes(resized_ref(problem, {Handle((place,), size, frozenset()): _probe(size)}))
    if now is None:
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


def _dimension_handles(
    problem: Problem, base: Shapes, taken: Set[tuple[str, int]], trials: _Trials
) -> Iterator[Handle]:
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
            if trials.runs(resized_ref(problem, {handle: _probe(size)})):
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
