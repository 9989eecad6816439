"""Makes a problem small: cuts its sizes, as long as the module still runs, until a forward pass is within a budget.

What may be cut: integers at module level that shapes follow from (also inside tuples and lists), and dimensions of
inputs that no such constant reaches. Every trial is a forward pass on the meta device, so nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.problem import Instance, Problem, ProblemRef, load_ref
from warpsmith.kernels.shape_handles import Handle, Place, resized_ref

BATCH = 2
"""What the outermost size of the inputs is cut to first, and to 1 last: one image hides mistakes in strides over
images."""
_KEPT = 8
"""Sizes are cut to this at first, and below it only where the budget asks for it: kernel sizes, strides and groups
stay what they are."""
_LEAST = 3
_DIVISORS = (16, 8, 4, 2)
"""Sizes stay multiples of what they are multiples of, where they can: heads, groups and patches divide them."""
_FAR = 3
"""Power of a divisor of all sizes that the cost has to be above the budget: it falls by as much at least."""
_MOST_TRIALS = 120


@dataclass(frozen=True, slots=True)
class Budget:
    """What a small problem may cost."""

    elements: int
    """Of inputs and the results of all operators together; parameters take nothing but memory."""
    flops: int
    """Of products and convolutions."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one forward pass takes, counted without data."""

    elements: int
    flops: int
    given: tuple[tuple[int, ...], ...]
    """Shapes of the inputs by flat position; a number has none."""

    def share(self, budget: Budget) -> float:
        """At most 1 where the budget holds."""
        return max(self.elements / budget.elements, self.flops / budget.flops)


class _Elements(TorchDispatchMode):
    """Counts the elements of all operators' results."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if not getattr(func, "is_view", False):
            self.count += sum(leaf.numel() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor))
        return found


def cost_of(problem: Problem) -> Cost:
    """What a forward pass takes. UserError where the module cannot be made at these sizes or gives something empty;
    where it needs data, operators after that point are not counted."""
    instance = _built(problem)
    elements, flops = _Elements(), FlopCounterMode(display=False)
    with elements, flops:
        try:
            results = instance.run()
        except NotImplementedError:
            # `.item()` and the like: what only real tensors have.
            results = []
        except Exception as error:
            # Where forward makes a tensor of its own it lies on another device.
            if "meta" not in str(error):
                raise UserError(str(error)) from error
            results = []
    if any(not result.numel() for result in results):
        raise UserError("a result is empty")
    given = tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else () for value in instance.inputs)
    read = sum(value.numel() for value in instance.inputs if isinstance(value, torch.Tensor))
    return Cost(elements.count + read, flops.get_total_flops(), given)


def _built(problem: Problem) -> Instance:
    """Without data, but where the constructor itself asks for some."""
    try:
        return problem.build(device="meta", seed=0)
    except UserError as error:
        if "meta tensors" not in str(error):
            raise
    return problem.build(device="cpu", seed=0)


def shrunk(problem: Problem, budget: Budget) -> tuple[ProblemRef, Cost]:
    """The problem at sizes within the budget, or as near to it as cutting gets, and what it takes there."""
    search = _Search(problem, cost_of(problem), budget)
    search.cut_everything()
    search.cut_batch(BATCH)
    for least in (_KEPT, _LEAST):
        while search.over and search.trials < _MOST_TRIALS and search.cut_something(least):
            pass
    search.cut_batch(1)
    return search.problem.ref, search.cost


class _Search:
    """The smallest problem so far; `over`: it is not small enough."""

    def __init__(self, problem: Problem, cost: Cost, budget: Budget) -> None:
        self.problem, self.cost, self.budget = problem, cost, budget
        self.trials = 0
        self._cuts: dict[Place, int] = {}
        """Dimensions of inputs that are cut themselves."""
        self._failed: set[frozenset[tuple[Handle, int]]] = set()
        self._useless: set[tuple[Place, ...]] = set()

    @property
    def over(self) -> bool:
        """Whether the budget is not kept yet."""
        return self.cost.share(self.budget) > 1

    def cut_everything(self) -> None:
        """Divides all sizes at once as long as the budget is far: one trial for many, of which each takes long."""
        for divisor in (4, 2):
            while self.cost.share(self.budget) > divisor**_FAR and self._try(
                {
                    handle: handle.size // divisor
                    for handle in self._alone()
                    if handle.size % divisor == 0 and handle.size // divisor >= _KEPT
                }
            ):
                pass

    def cut_batch(self, size: int) -> None:
        """Cuts what the first size of the inputs follows from, where the budget asks for something."""
        first = next((shape[0] for shape in self.cost.given if shape), 0)
        if not self.over:
            return
        rest = [shape[1:] for shape in self.cost.given]
        for handle in self._handles():
            before = self.problem, self.cost, self._cuts
            if handle.size == first and self._try({handle: size}):
                if [shape[1:] for shape in self.cost.given] == rest:
                    return
                # It is no batch's size alone: rows and columns of a square, for instance.
                self.problem, self.cost, self._cuts = before

    def cut_something(self, least: int) -> bool:
        """Cuts the largest size that can be cut, as far as it can be at once. Whether one was."""
        for handle in sorted(self._handles(), key=lambda one: -one.size):
            if handle.places in self._useless:
                continue
            for size in _smaller(handle.size, least):
                if self.trials >= _MOST_TRIALS:
                    return False
                if self._try({handle: size}):
                    return True
        return False

    def _handles(self) -> Iterator[Handle]:
        """Every size alone, then all that are equal together: channels in and out, height and width."""
        by_size: dict[int, list[Place]] = {}
        for handle in self._alone():
            by_size.setdefault(handle.size, []).extend(handle.places)
            yield handle
        for size, members in by_size.items():
            if len(members) > 1:
                yield Handle(tuple(members), size, frozenset())

    def _alone(self) -> list[Handle]:
        places = [*_constants(self.problem.settable()), *self._dimensions()]
        return [Handle((place,), size, frozenset()) for place, size in places]

    def _dimensions(self) -> Iterator[tuple[Place, int]]:
        """Dimensions of inputs that are no constant's value."""
        constants = {size for _, size in _constants(self.problem.settable())}
        for index, shape in enumerate(self.cost.given):
            for dim, size in enumerate(shape):
                if size > 1 and size not in constants:
                    yield Place(index=index, dim=dim), size

    def _try(self, sizes: Mapping[Handle, int]) -> bool:
        """Keeps the problem with smaller sizes where it runs and takes less."""
        key = frozenset(sizes.items())
        if key in self._failed or not sizes or any(size >= handle.size for handle, size in sizes.items()):
            return False
        self.trials += 1
        self._failed.add(key)
        cuts = self._cuts | {place: size for handle, size in sizes.items() for place in handle.places if _is_dim(place)}
        try:
            problem = self._with(sizes, cuts)
            cost = cost_of(problem)
        except (UserError, NotYetError):
            return False
        if cost.share(self.budget) >= self.cost.share(self.budget):
            if cost == self.cost:
                self._useless.update(handle.places for handle in sizes)
            return False
        self.problem, self.cost, self._cuts = problem, cost, cuts
        self._failed.clear()
        return True

    def _with(self, sizes: Mapping[Handle, int], cuts: Mapping[Place, int]) -> Problem:
        """Constants first, then the dimensions that are cut: all others follow the constants as they are now."""
        constants = {handle: size for handle, size in sizes.items() if not all(map(_is_dim, handle.places))}
        kept = {
            Handle(tuple(place for place in handle.places if not _is_dim(place)), handle.size, frozenset()): size
            for handle, size in constants.items()
        }
        whole = load_ref(self.problem.ref.model_copy(update={"sizes": None}))
        whole.load()
        found = load_ref(resized_ref(whole, kept))
        if cuts:
            found.load()
            found = load_ref(resized_ref(found, {Handle((at,), size, frozenset()): size for at, size in cuts.items()}))
        return found


def _is_dim(place: Place) -> bool:
    """Whether a size is a dimension of an input, no constant."""
    return place.constant is None


def _smaller(size: int, least: int) -> Iterator[int]:
    """Smaller sizes to try: from a sixteenth to the next below that divides as well."""
    for divisor in _DIVISORS:
        if size % divisor == 0 and size // divisor >= least:
            yield size // divisor
    for divisor in _DIVISORS:
        if size % divisor and size // divisor >= least:
            yield size // divisor


def _constants(values: Mapping[str, Any]) -> Iterator[tuple[Place, int]]:
    for name, value in values.items():
        if type(value) is int and value > 1:
            yield Place(constant=name), value
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                if type(item) is int and item > 1:
                    yield Place(constant=name, index=index), item
