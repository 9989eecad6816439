"""Shape variants of a problem: the same computation at other sizes (prime, one, tail), drawn at random and cheap."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from warpsmith.kernels.capture import can_be_called, capture
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.problem import Problem, ProblemRef, load_ref
from warpsmith.kernels.shape_handles import Handle, Shapes, declared_shapes, handles_of, resized_ref, shapes_of

ShapeClass = Literal["prime", "one", "tail"]
CLASSES: tuple[ShapeClass, ...] = ("prime", "one", "tail")
"""All sizes prime; one size 1; sizes one beside a multiple of a tile."""

_TILES = (4, 8, 16, 32, 64, 128, 256)
_TRIES = 4
"""Draws of one class before the sizes count as impossible: each costs a trace."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a variant may cost to judge."""

    elements: int
    """Of all inputs, parameters and outputs together."""
    flops: int
    drawn: int = 1 << 25
    """Elements that `get_inputs` may draw before they are cut, where its sizes are no constants."""

    def holds(self, graph: OpGraph) -> bool:
        """Whether a traced problem is within it."""
        elements = sum(leaf.spec.numel for leaf in graph.inputs.values())
        elements += sum(graph.spec(ref.name).numel for ref in graph.outputs)
        return elements <= self.elements and graph.flops <= self.flops


@dataclass(frozen=True, slots=True)
class Variant:
    """The problem at other sizes, traced."""

    shape: ShapeClass
    ref: ProblemRef
    graph: OpGraph


class Variants:
    """Draws variants of one problem. Sizes stay of the declared order where the budget allows: slot values that make
    sense at the declared sizes then make sense here."""

    def __init__(
        self, problem: Problem, flops: int, budget: Budget, seed: int, used: Collection[str] | None = None
    ) -> None:
        """`flops` are the problem's own; `seed` is secret. `used` names the inputs and parameters (`in0`, `param:NAME`)
        that its results depend on: with them sizes are told to be too large without a trace."""
        self._problem = problem
        self._flops = flops
        self._used = None if used is None else frozenset(used)
        self._budget = budget
        self._random = random.Random(seed)
        self._handles: list[Handle] | None = None
        self._shapes: Shapes = {}

    @property
    def handles(self) -> list[Handle]:
        """The sizes that can change, the innermost first; found at the first use."""
        if self._handles is None:
            try:
                self._shapes = declared_shapes(self._problem)
                self._handles = handles_of(self._problem)
            except (UserError, NotYetError):
                self._handles = []
            self._handles.sort(key=lambda handle: (-handle.outermost, -handle.size))
        return self._handles

    @property
    def most(self) -> int:
        """How many variants of one class are worth drawing for a candidate."""
        return 2 * len(self.handles)

    def draw(self, shape: ShapeClass, number: int) -> Variant | None:
        """Variant `number` of a class, or None where no sizes were found that run. Each number lets another handle
        keep its order while the rest shrink into the budget, the innermost first; the second half leaves that handle
        a round size, for slot values that ask for aligned runs."""
        if not self.handles or self._elements(self._fixed()) > self._budget.elements:
            return None
        for attempt in range(_TRIES):
            sizes = self._sizes(shape, self._subset(attempt), number)
            found = self._traced(shape, sizes) if sizes else None
            if found is not None:
                return found
        return None

    def _fixed(self) -> Shapes:
        """Tensors that no handle changes."""
        changing = {name for handle in self.handles for name, _ in handle.dims}
        return {name: shape for name, shape in self._shapes.items() if name not in changing}

    def _elements(self, shapes: Shapes) -> int:
        """How many elements of the budget tensors of these shapes take at least."""
        if self._used is None:
            return 0
        counted = (shape for name, shape in shapes.items() if name in self._used or name.startswith("out"))
        return sum(prod(shape) for shape in counted)

    def _subset(self, attempt: int) -> list[Handle]:
        """All handles, then, where some must keep their size (channels divide into groups), random parts of them."""
        if attempt == 0 or len(self.handles) == 1:
            return list(self.handles)
        chosen = self._random.sample(self.handles, max(1, len(self.handles) - attempt))
        return [handle for handle in self.handles if handle in chosen]

    def _sizes(self, shape: ShapeClass, chosen: Sequence[Handle], number: int) -> dict[Handle, int]:
        """Sizes of a class for the chosen handles, those that stay as declared left out."""
        count = len(chosen)
        # Prime sizes start with the outermost, so that more blocks than declared are seen as well as longer rows.
        kept = chosen[(number - (shape == "prime")) % count]
        spared = kept if count > 1 and number % (2 * count) >= count else None
        single = chosen[(number + 1) % count] if shape == "one" else None
        orders = self._orders(chosen, kept, spared, single)
        sizes: dict[Handle, int] = {}
        for handle, order in orders.items():
            if handle is single:
                sizes[handle] = 1
            elif handle is spared:
                sizes[handle] = handle.size if order >= handle.size else max(1, int(order) // _ROUND) * _ROUND
            else:
                above = order > handle.size and (handle is kept or shape == "tail")
                sizes[handle] = self._size(shape, handle, order, above=above)
        return {handle: size for handle, size in sizes.items() if size != handle.size}

    def _orders(
        self, chosen: Sequence[Handle], kept: Handle, spared: Handle | None, single: Handle | None
    ) -> dict[Handle, float]:
        """Largest magnitude of each size: beyond the declared one, and divided until the budget holds, the kept one
        last; with the innermost kept, the outermost first, so that long rows of several dimensions stay long."""
        orders = {handle: _GROWTH * handle.size for handle in chosen}
        if spared is not None:
            orders[spared] = float(spared.size)
        if single is not None:
            orders[single] = 1.0
        while not self._affordable(orders):
            wide = [handle for handle in chosen if orders[handle] > _LEAST and handle is not kept]
            if not wide and orders[kept] <= _LEAST:
                break
            outer_first = kept is chosen[0]
            shrunk = min(wide or [kept], key=lambda handle: (handle.outermost if outer_first else 0, -orders[handle]))
            orders[shrunk] = max(_LEAST, orders[shrunk] / 2)
        return orders

    def _affordable(self, orders: Mapping[Handle, float]) -> bool:
        """Whether sizes of these orders are within the budget, by how tensors and work scale with them."""
        elements, work = 0.0, float(self._flops)
        for name, shape in self._shapes.items():
            scale = 1.0
            for handle, order in orders.items():
                scale *= (order / handle.size) ** sum(place[0] == name for place in handle.dims)
            elements += prod(shape) * scale
        for handle, order in orders.items():
            work *= order / handle.size
        return elements <= self._budget.elements and work <= self._budget.flops

    def _size(self, shape: ShapeClass, handle: Handle, order: float, *, above: bool) -> int:
        """A random size of a class, of this order, other than the declared one where there is another: beyond it with
        `above`, where bounds that are right up to the declared size show."""
        low, high = handle.size if above else max(2, int(_SPREAD * order)), max(3, int(order))
        if shape == "prime":
            return self._pick(primes(low, high), handle.size) or self._pick(primes(2, high + 4), handle.size) or 2
        if shape == "tail":
            return self._pick(beside_tiles(low, high + 1), handle.size) or max(2, high - 1)
        return self._random.randint(low, high)

    def _pick(self, sizes: Iterator[int], declared: int) -> int | None:
        found = [size for size in sizes if size != declared]
        return self._random.choice(found) if found else None

    def _traced(self, shape: ShapeClass, sizes: Mapping[Handle, int]) -> Variant | None:
        """The variant, if the module runs at these sizes within the budget."""
        ref = resized_ref(self._problem, sizes)
        try:
            if ref.sizes is not None and self._drawn(ref) > self._budget.drawn:
                return None
            problem = load_ref(ref)
            if self._used is not None and not self._worth_a_trace(problem):
                return None
            graph = capture(problem)
            if not self._budget.holds(graph):
                return None
            return Variant(shape, problem.ref, graph)
        except (UserError, NotYetError):
            return None

    def _worth_a_trace(self, problem: Problem) -> bool:
        """Whether the problem is within the budget as far as shapes tell, and runs at all: a trace takes ten times as
        long as a run without data."""
        shapes = shapes_of(problem)
        if self._elements(shapes) > self._budget.elements:
            return False
        return any(name.startswith("out") for name in shapes) or can_be_called(problem)

    def _drawn(self, ref: ProblemRef) -> int:
        shapes = shapes_of(load_ref(ref.model_copy(update={"sizes": None})))
        return sum(prod(shape) for name, shape in shapes.items() if name.startswith("in"))


_GROWTH = 1.5
"""How far above its declared value a size may lie: what holds for fewer rows alone is to be seen too."""
_SPREAD = 0.4
"""The least size of an order, as a share of it."""
_LEAST = 3.0
"""Orders are not divided below this."""
_WINDOW = 4096
_ROUND = 16
"""What a round size is a multiple of: vectors of any width are aligned."""


def primes(low: int, high: int) -> Iterator[int]:
    """Primes in [low, high]; of wide ranges those among the last numbers."""
    for number in range(max(2, low, high - _WINDOW), high + 1):
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            yield number


def beside_tiles(low: int, high: int) -> Iterator[int]:
    """Sizes in [low, high] one below or above a multiple of the largest tile that fits several times; of wide ranges
    those among the last."""
    tile = max((tile for tile in _TILES if 3 * tile <= high), default=2)
    for multiple in range(max(tile, (max(low, high - _WINDOW) // tile) * tile), high + 2, tile):
        for size in (multiple - 1, multiple + 1):
            if max(2, low) <= size <= high:
                yield size
