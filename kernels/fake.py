"""A problem with tensors that have no storage: what the tracer works on."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.placement import strided_like
from warpsmith.kernels.problem import Instance, Problem, named_tensors

logger = logging.getLogger(__name__)


def fake_instance(problem: Problem) -> Instance:
    """The problem with tensors that have no storage and claim to be on the CPU.

    Built on the meta device; where the user's constructor or get_inputs() needs real values, on the CPU.
    """
    try:
        instance = problem.build(device="meta", seed=0)
    except UserError as refusal:
        logger.debug("cannot build on the meta device, building on the CPU: %s", refusal)
        instance = problem.build(device="cpu", seed=0)
    mode = FakeTensorMode()
    seen: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in seen:
            seen[id(tensor)] = _fake_like(tensor, mode)
        return seen[id(tensor)]

    for part in instance.module.modules():
        holders: tuple[dict[str, Any], ...] = (part._parameters, part._buffers, vars(part))
        for holder in holders:
            for name, value in holder.items():
                if isinstance(value, torch.Tensor):
                    holder[name] = fake(value)
        _attributes_as_buffers(part)
    inputs = [fake(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in instance.inputs]
    return Instance(instance.module, inputs, named_tensors(instance.module), instance.structure, instance.draw_inputs)


def _attributes_as_buffers(part: torch.nn.Module) -> None:
    """Makes buffers of tensors that are plain attributes: the tracer takes those for constants, and a change of one in
    place for a fault of its own. What the class has under the same name would hide a buffer, and stays."""
    for name, value in list(vars(part).items()):
        if isinstance(value, torch.Tensor) and not hasattr(type(part), name):
            part._buffers[name] = vars(part).pop(name)


def _fake_like(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with mode:
        fake = strided_like(tensor, "cpu")
    return torch.nn.Parameter(fake, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else fake


def forget_fake_constants(program: Any) -> None:
    """Decomposing computes on what constants hold, by kernels that read memory: a fake tensor has none, and the process
    would crash."""
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, FakeTensor) and isinstance(value.constant, FakeTensor):
            value.constant = None
