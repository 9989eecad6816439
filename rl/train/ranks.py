"""The processes of one training, as `accelerate launch` or `torchrun` start them: each samples and learns from its own
groups, gradients are added up, and all have the same weights."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.sampler import Source
from warpsmith.rl.train.task import Batch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process and how many there are."""

    index: int = 0
    count: int = 1
    device: str | None = None
    """Of this process; None: the settings say."""

    @classmethod
    def of_environment(cls, device: str) -> Ranks:
        """What the launcher said; one process where there was none. `device`: of the settings."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return cls()
        from accelerate import PartialState

        state = PartialState(cpu=device == "cpu")
        where = "cpu" if state.device.type == "cpu" else str(state.device)
        return cls(state.process_index, state.num_processes, where)

    @property
    def first(self) -> bool:
        """Whether this one writes what is the same for all."""
        return self.index == 0

    def gathered(self, one: T) -> list[T]:
        """What each process gives, in their order."""
        if self.count == 1:
            return [one]
        found: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(found, one)
        return found

    def added(self, numbers: Iterable[float]) -> list[float]:
        """Sums over the processes."""
        return [sum(column) for column in zip(*self.gathered(list(numbers)), strict=True)]

    def mean(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Means over the processes that have a figure."""
        rows = self.gathered(dict(figures))
        found = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            known = [row[name] for row in rows if math.isfinite(row.get(name, math.nan))]
            found[name] = sum(known) / len(known) if known else math.nan
        return found

    def add_gradients(self, weights: Iterable[torch.nn.Parameter]) -> None:
        """Sums over the processes, in place; a weight without a gradient has a zero one."""
        if self.count == 1:
            return
        for one in weights:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
            torch.distributed.all_reduce(one.grad)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            torch.distributed.barrier()


@dataclass(frozen=True, slots=True)
class Shard:
    """The batches of one process: every `count`-th of a source."""

    source: Source
    ranks: Ranks

    def batch(self, index: int, policy: Policy, check: Callable[[], None]) -> Batch:
        """Its own part of batch `index` of all processes."""
        number = index * self.ranks.count + self.ranks.index
        return self.source.batch(number, policy, check).model_copy(update={"index": index})
