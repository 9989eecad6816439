"""How much memory eager will take, told from a run without data."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.recurrent import steps_left_out


@dataclass(frozen=True, slots=True)
class Footprint:
    """What eager takes."""

    tensors: int
    """Bytes at its peak: weights, inputs, outputs and what lies between, copies of what cuDNN turns among them."""
    convolves: bool = False
    """Whether cuDNN takes part, some of whose algorithms want more."""


def eager_footprint(problem: Problem) -> Footprint | None:
    """What eager will take; None where the module cannot be run on the meta device."""
    try:
        # Constants of forward would take a trace; they are no part of what is counted.
        instance = problem.build(device="meta", seed=0)
        with steps_left_out(instance.module), _Living() as living:
            living.hold([*instance.module.parameters(), *instance.module.buffers(), *instance.inputs])
            instance.run()
    except (UserError, RuntimeError, NotImplementedError, ValueError, TypeError):
        return None
    return Footprint(int(living.most), living.convolves)


class _Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows which storages live while operators run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._holders: Counter[int] = Counter()
        self._bytes: dict[int, int] = {}
        self.most = 0
        self.convolves = False

    def hold(self, tree: Any) -> None:
        """Counts the storages of these tensors until the last tensor on them is gone."""
        for leaf in pytree.tree_leaves(tree):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key = storage._cdata
                self._holders[key] += 1
                self._bytes[key] = storage.nbytes()
                weakref.finalize(leaf, self._gone, key)
        self.most = max(self.most, sum(self._bytes.values()))

    def _gone(self, key: int) -> None:
        self._holders[key] -= 1
        if self._holders[key] == 0:
            self._bytes.pop(key, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.hold(result)
        if "convolution" in str(func):
            self.convolves = True
            # Tensor cores take channels last: cuDNN turns what comes in and what goes out. Measured on an H200, eager's
            # peaks over tensors alone: 2.0 times where a convolution is all there is.
            turned = sum(one.nbytes for one in (args[0], result))
            self.most = max(self.most, sum(self._bytes.values()) + turned)
        return result
