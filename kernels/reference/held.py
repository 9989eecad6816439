"""A problem whose module this process never runs: what is known of it was found in a confined process, as data."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.graph_json import decoded
from warpsmith.kernels.operand import Operand
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.problem import Instance, Problem, ProblemRef, StoredTensor
from warpsmith.kernels.records import Record


class HeldOperand(Record):
    """An operand on its way between processes."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


class HeldFacts(Record):
    """What a confined process found out about a reference module."""

    operands: tuple[HeldOperand, ...]
    graph: Any = None
    """As `graph_json.encoded` gives it; None where it cannot be traced or covered."""
    not_yet: str | None = None
    """Why there is no graph."""
    lifted: dict[str, StoredTensor] = Field(default_factory=dict)


class HeldProblem(Problem):
    """A reference module by its facts. `load` does nothing; what would run the module raises NotYetError."""

    def __init__(self, ref: ProblemRef, source: str, facts: HeldFacts) -> None:
        super().__init__(ref.model_copy(update={"lifted": facts.lifted}), source=source)
        self.facts = facts

    def load(self) -> None:
        """Nothing is loaded here."""

    def build(self, *, device: str, seed: int) -> Instance:
        """Raises NotYetError: it would run the module."""
        raise NotYetError(f"{self.path} was written by a model: it runs in confined processes alone")

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """Tensors that forward makes itself, as the confined process found them."""
        return {name: tensor.load() for name, tensor in self.facts.lifted.items()}

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What a launch plan may name."""
        return tuple(Operand(one.name, one.dtype, one.shape, one.strides) for one in self.facts.operands)

    def graph(self) -> OpGraph:
        """The traced graph. NotYetError where there is none."""
        graph = decoded(self.facts.graph) if self.facts.graph is not None else None
        if not isinstance(graph, OpGraph):
            raise NotYetError(self.facts.not_yet or f"{self.path}: forward could not be traced")
        return graph
