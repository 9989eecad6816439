"""What a run records of its search space, so that its report can be written without the problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from warpsmith.kernels.cost import floor_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.family import KernelSpec


def space_document(specs: Mapping[str, KernelSpec], device: DeviceModel) -> dict[str, Any]:
    """`config["space"]` of the manifest: the device's model, what the problem moves and computes, and the slots of each
    family with their owners, naive and sensible values."""
    if not specs:
        return {"device": asdict(device), "operators": [], "families": {}}
    region = next(iter(specs.values())).region
    return {
        "device": asdict(device),
        "bytes": region.floor_bytes,
        "flops": region.flops,
        "floor_us": floor_us(region, device),
        "operators": list(region.source_ops),
        "families": {name: _family(spec) for name, spec in specs.items()},
    }


def _family(spec: KernelSpec) -> dict[str, Any]:
    sensible = spec.sensible()
    return {
        "slots": {
            slot.name: {
                "owner": slot.owner, "kind": slot.kind, "doc": slot.doc, "values": len(slot.values),
                "naive": slot.default, "sensible": sensible[slot.name],
            }
            for slot in spec.slots
        }
    }  # fmt: skip
