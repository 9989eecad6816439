"""What the driver says of a GPU: its identity, and its limits and rates as a DeviceModel."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels.device import DeviceModel, model_from_properties
from warpsmith.sandbox.cuda.driver import Driver, DriverError, driver
from warpsmith.sandbox.driver_probe import ATTRIBUTES


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Which device, and under which driver."""

    name: str
    uuid: str
    driver: str
    arch: str


def identity(index: int = 0, cuda: Driver | None = None) -> GpuIdentity:
    """Identity of a visible device."""
    cuda = cuda or driver()
    major, minor = (cuda.attribute(index, ATTRIBUTES[name]) for name in ("major", "minor"))
    return GpuIdentity(cuda.name(index), cuda.uuid(index), cuda.version(), f"sm_{major}{minor}")


def device_model(index: int = 0) -> DeviceModel:
    """Limits as the driver reports them; rates measured where this device is known, else from clocks and widths."""
    cuda = driver()
    properties: dict[str, int | str | float] = {"name": cuda.name(index)}
    for name, attribute in ATTRIBUTES.items():
        try:
            properties[name] = cuda.attribute(index, attribute)
        except DriverError:
            # An older driver does not know every attribute; the model takes those from the device's like.
            continue
    return model_from_properties(properties)
