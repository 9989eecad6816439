"""Cost-model inputs of the window family."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.families import common
from warpsmith.kernels.families.window_layout import fetched, geometry, layout_of, span
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.region import WindowRegion
from warpsmith.kernels.slots import Values

IN_FLIGHT = 16
"""Reads that the compiler keeps going at a time in unrolled code."""
STAGED_IN_FLIGHT = 4
"""The same where it goes to shared memory. Measured on an H200: 1 ahead takes as long as 4 (64 pairs of combinations of
two problems, medians 0.97 and 1.00)."""


def registers_of(region: WindowRegion, values: Values) -> int:
    """Estimated registers of a thread: running folds, a row of inputs, weights, addresses."""
    g, path = geometry(region), values["path"]
    rows, slices, items = int(values["rows"]), int(values["slices"]), int(values["items"])
    vector, plain = int(values["vector"]), int(values["rows"]) * int(values["slices"]) == 1
    folds = rows * slices * (vector if path == "columns" else items if path == "direct" else 1)
    folds *= 2 if region.position is not None else 1
    row = vector if path == "columns" else span(g.w, items if path == "direct" else 1)
    weights = region.taps if region.weight is not None and region.taps <= 64 else 0
    coming = int(values["ahead"]) * vector * sum(max(1, common.item_bytes(load) // 4) for load in region.loads)
    # A slice's folds by rows are kept apart until it is over, and the next slice is read meanwhile.
    apart = path == "columns" and g.d.taps > 1 and not plain
    folds += rows * vector if apart else 0
    wanted = 40 + folds + max(min(row, 16) if plain else row, coming if path != "direct" else 0) + weights
    # Through L1 the compiler reads whole slices ahead.
    deep = path == "direct" and g.d.taps > 1 and (not plain or items > 1)
    if apart or deep:
        return int(1.45 * (wanted + (40 if deep else 0)))
    # Where columns are folded first, a row's folds wait in registers for the next one's.
    return int(1.2 * wanted) if path == "columns" and not plain else wanted


def window_features(kernel: str, region: WindowRegion, values: Values) -> LaunchFeatures:
    """One launch over all planes."""
    g, layout, path = geometry(region), layout_of(region, values), values["path"]
    rows, slices, vector = int(values["rows"]), int(values["slices"]), int(values["vector"])
    planes, outputs = region.kept_size, region.kept_size * g.d.out * g.h.out * g.w.out
    size = sum(common.item_bytes(load) for load in region.loads if load.address is not None)
    touched = planes * fetched(g.d) * fetched(g.h) * fetched(g.w)
    inputs = planes * g.d.extent * g.h.extent * g.w.extent
    small = min(1.0, sum(load.numel for load in region.loads) / max(1, inputs))
    # What a team reads of rows that others read too; neighbours along the last dimension share next to nothing.
    requested = layout.units * layout.rows_read * min(layout.columns, g.w.extent + 2 * g.w.padding)
    through, operations = _on_chip(region, values, requested)
    through += 2 * outputs if layout.turned_bytes else 0
    special = common.special_ops(region.post) * outputs + common.special_ops(region.lines) * requested
    lines = common.instructions(region.post) + len(region.stores) * 3
    written = sum(store.numel * codegen.ITEM_BYTES[store.dtype] for store in region.stores)
    together = max(1, min(4 // layout.rows_read, layout.columns // (int(values["lanes"]) * vector)))
    ahead = IN_FLIGHT if path == "direct" else max(int(values["ahead"]), together, STAGED_IN_FLIGHT)
    in_flight = min(layout.rows_read * together, ahead) * vector * size
    return LaunchFeatures(
        kernel=kernel, blocks=layout.blocks, threads=layout.threads, registers=registers_of(region, values),
        shared_bytes=layout.shared_bytes + layout.turned_bytes, dram_read=int(touched * size * small),
        dram_written=written,
        l2_read=max(int(touched * size * small), int(requested * size)), shared_traffic=4 * through,
        flops=operations * (2 if region.weight else 1) + outputs * sum(line.flops for line in region.post),
        special_ops=special,
        instructions=operations + through // max(1, vector if path == "direct" else 1) + requested * 3 // vector
        + outputs * (lines + 6) + common.instructions(region.lines) * requested,
        bytes_in_flight=in_flight, barriers=0 if path == "direct" else 1, sweeps=1,
        independent=max(1, min(8, rows * slices * (vector if path == "columns" else 1))),
    )  # fmt: skip


def _on_chip(region: WindowRegion, values: Values, requested: int) -> tuple[int, int]:
    """(elements through L1 and shared memory, folding operations) of the whole launch."""
    g, path, layout = geometry(region), values["path"], layout_of(region, values)
    rows, slices, items = int(values["rows"]), int(values["slices"]), int(values["items"])
    computed = layout.units * layout.tile * rows * slices
    if path == "columns":
        columns = layout.units * layout.columns * rows * slices
        operations = columns * g.d.taps * g.h.taps + computed * g.w.taps
        return requested + columns + computed * g.w.taps, operations
    threads = layout.units * layout.tile // (items if path == "direct" else 1)
    row = span(g.w, items) if path == "direct" else g.w.taps
    across = 1 if values["fold"] == "rows" else g.w.taps
    operations = computed * g.d.taps * g.h.taps * across
    operations += layout.rows_read * threads * g.w.taps if values["fold"] == "rows" else 0
    return layout.rows_read * threads * row + (2 * requested if path == "staged" else 0), operations
