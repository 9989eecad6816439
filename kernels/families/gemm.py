"""The SIMT GEMM family: tiled fp32 matrix products with load transforms, an epilogue and a split of k."""

from __future__ import annotations

from itertools import product

from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.codegen import parameters, render_lines
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel, capability
from warpsmith.kernels.families.gemm_cost import FINISH_BLOCK, gemm_features
from warpsmith.kernels.families.gemm_operand import operand_of
from warpsmith.kernels.families.gemm_shape import Shape, check_shape, copies
from warpsmith.kernels.families.gemm_text import context_of, distinct
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, SlotValue
from warpsmith.kernels.region import Line, MatmulRegion
from warpsmith.kernels.slots import Role, Slot, Values

_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_TILES: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 128, 8, 8, 8), (128, 256, 8, 8, 16), (64, 128, 16, 8, 8), (128, 64, 16, 8, 8), (256, 64, 16, 8, 8),
    (64, 256, 16, 8, 8), (256, 32, 16, 8, 4), (32, 256, 16, 4, 8), (128, 32, 32, 4, 4), (32, 128, 32, 4, 4),
    (64, 64, 16, 4, 4), (32, 32, 32, 2, 2), (16, 64, 16, 2, 4), (64, 16, 16, 4, 2),
)  # fmt: skip
"""Usual tiles: rows, columns, depth, and rows and columns of a thread; the long ones are for narrow results."""


class GemmFamily:
    """Shared-memory and register tiles, slices under way while others are multiplied, split of k; fp32 FFMA, no tensor
    cores."""

    name = "gemm"
    doc = "tiled matrix product on the fp32 pipes, operands staged in shared memory"

    def refuse(self, region: AnyRegion) -> str | None:
        """Anything but a matrix product over fp32 values."""
        if not isinstance(region, MatmulRegion):
            return "the region holds no matrix product"
        others = {load.dtype for load in (*region.a_loads, *region.b_loads)} - {"float32"}
        return f"operands of type {', '.join(sorted(others))}" if others else None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """Tile (config), staging (memory), register tile (compute), split of k (reduction), code slots."""
        assert isinstance(region, MatmulRegion)
        tiles, register_tiles = (16, 32, 64, 128, 256), (1, 2, 4, 8, 16)
        found = [
            _choice("tile_m", "config", tiles, "rows of the output that a block computes"),
            _choice("tile_n", "config", tiles, "columns of the output that a block computes"),
            _choice("tile_k", "config", (8, 16, 32), "depth of one slice in shared memory", naive=16),
            _choice("min_blocks", "config", (1, 2), "blocks a multiprocessor must hold: caps the registers"),
            _choice("vector", "memory", (1, 4), "elements a thread reads from global memory at a time"),
            _choice("padding", "memory", (0, 4), "floats added to a slice's lines against bank conflicts"),
            _choice("stages", "memory", _stages(region, device), "slices in shared memory: all but one under way"),
            _choice("group_m", "memory", (1, 8), "rows of tiles that neighbouring blocks share in L2"),
            _choice("thread_m", "compute", register_tiles, "rows of sums in a thread's registers"),
            _choice("thread_n", "compute", register_tiles, "columns of sums in a thread's registers"),
            _choice("split_k", "reduction", _SPLITS, "blocks that share an output tile, added up after"),
        ]
        if _copies(region, device):
            doc = "operands go to shared memory past the registers (cp.async)"
            found.append(_choice("async_copy", "memory", (False, True), doc))
        if region.needed:
            doc = "tiles whose sums the epilogue's mask leaves out are not multiplied"
            found.append(_choice("skip_tiles", "reduction", (True, False), doc))
        return (
            *found,
            _code("load_transform_a", "memory", region.a_lines, "from the values read to the left operand"),
            _code("load_transform_b", "memory", region.b_lines, "from the values read to the right operand"),
            _code("epilogue", "compute", region.epilogue, "from the finished sum `acc` to the outputs"),
        )

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Launch limits, whole warps in the tile, and combinations that cannot pay."""
        assert isinstance(region, MatmulRegion)
        shape = Shape.of(region, values)
        return check_shape(region, device, shape) or _check_transforms(region, shape, values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The usual tiles, each with the split of k and the order of blocks that the model finds cheapest."""
        assert isinstance(region, MatmulRegion)
        best: Values = {}
        least = float("inf")
        for tile, split, group, way in product(_TILES, _SPLITS, (8, 1), _ways(region, device)):
            full: Values = dict(zip(("tile_m", "tile_n", "tile_k", "thread_m", "thread_n"), tile, strict=True))
            # Two blocks of the square tile fit where its registers are held to that.
            full |= {"vector": 4, "padding": 4, "min_blocks": 2 if tile == _TILES[0] else 1, "skip_tiles": True}
            full |= {"split_k": split, "group_m": group} | way
            if self.check(region, device, full) is not None:
                continue
            us = total_us(breakdown(self.features(region, device, full), device))
            if us < least:
                best, least = full, us
        return best if region.needed else {name: value for name, value in best.items() if name != "skip_tiles"}

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """One kernel; with split_k > 1 a second one adds the partial sums."""
        assert isinstance(region, MatmulRegion)
        shape = Shape.of(region, values)
        loads = distinct((*region.a_loads, *region.b_loads, *region.epilogue_loads))
        found = parameters(loads, region.stores, {"partial": "float"})
        text = render(load_template("gemm.cu"), context_of(region, copies=_has_copies(device)))
        assembled = assemble(text, self.slots(region, device), values)
        args = tuple(parameter.ref for parameter in found)
        count = shape.split * region.batch * region.m * region.n if shape.split > 1 else 1
        steps = [KernelStep(kernel="gemm", grid=(shape.blocks, 1, 1), block=(shape.threads, 1, 1),
                            shared_bytes=shape.shared_bytes, args=args)]  # fmt: skip
        if shape.split > 1:
            blocks = -(-region.batch * region.m * region.n // FINISH_BLOCK)
            steps.append(KernelStep(kernel="gemm_finish", grid=(blocks, 1, 1), block=(FINISH_BLOCK, 1, 1), args=args))
        plan = LaunchPlan(buffers={"partial": Buffer(dtype="float32", shape=(count,))}, steps=tuple(steps))
        return Candidate(source=assembled.source, plan=plan, family=self.name, values=values,
                         slot_lines=assembled.slot_lines)  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """See `gemm_cost`."""
        assert isinstance(region, MatmulRegion)
        return gemm_features(region, Shape.of(region, values))


def _has_copies(device: DeviceModel) -> bool:
    """Asynchronous copies came with sm_80."""
    return capability(device.arch) >= 80


def _copies(region: MatmulRegion, device: DeviceModel) -> bool:
    return _has_copies(device) and copies(region)


def _ways(region: MatmulRegion, device: DeviceModel) -> tuple[Values, ...]:
    """How slices come to shared memory."""
    through: tuple[Values, ...] = ({"stages": 2},)
    if not _copies(region, device):
        return through
    return (*through, {"stages": 3, "async_copy": True}, {"stages": 4, "async_copy": True})


def _stages(region: MatmulRegion, device: DeviceModel) -> tuple[int, ...]:
    return (1, 2, 3, 4) if _copies(region, device) else (1, 2)


def _check_transforms(region: MatmulRegion, shape: Shape, values: Values) -> Invalid | None:
    """What is copied past the registers arrives as it is: an edited transform would not be applied."""
    if not shape.async_copy:
        return None
    for side in ("a", "b"):
        name = f"load_transform_{side}"
        if operand_of(region, side).copied and str(values.get(name, "")).strip():
            return Invalid(("async_copy", name), "shape", f"{name} takes operands that pass through registers")
    return None


def _choice(
    name: str, owner: Role, values: tuple[SlotValue, ...], doc: str, *, naive: SlotValue | None = None
) -> Slot:  # fmt: skip
    return Slot(name, owner, "choice", values, values[0] if naive is None else naive, doc)


def _code(name: str, owner: Role, lines: tuple[Line, ...], doc: str) -> Slot:
    text = render_lines(lines)
    return Slot(name, owner, "code", (text,), text, doc)
