"""How exact the compiled forms of a module are: a baseline of lower precision than eager's is no equal to beat."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils import _pytree as pytree

from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.compare import Yardstick, compare
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.session import Session


def baseline_errors(session: Session, inputs: InputSet, names: Sequence[str]) -> dict[str, float]:
    """By mode of torch.compile that has been compiled: the rms error of its outputs against float64, in units of
    eager's own, the largest of all outputs. A mode that gives other outputs, or for which memory is short, is left
    out."""
    if session.baseline_errors is None:
        session.baseline_errors = {}
        for name in names:
            module = session.compiled.get(name)
            if module is not None and not isinstance(module, str):
                with session.alone(shared=True):
                    found = _error(module, inputs)
                session.baseline_errors |= {} if found is None else {name: found}
    return session.baseline_errors


def _error(module: object, inputs: InputSet) -> float | None:
    arguments = pytree.tree_unflatten(list(inputs.inputs), inputs.instance.structure)
    try:
        with torch.no_grad():
            leaves = pytree.tree_leaves(module(*arguments))  # type: ignore[operator]
        outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len(outputs) != len(inputs.references):
            return None
        ratios = [
            compare(value, reference, measure, by_ratio=False).ratio
            for value, reference, measure in zip(outputs, inputs.references, inputs.yardsticks, strict=True)
            if isinstance(measure, Yardstick) and value.shape == reference.shape
        ]
    except Exception as error:
        if not oracle.is_out_of_memory(error):
            raise
        return None
    told = [ratio for ratio in ratios if ratio is not None]
    return max(told, default=None)
