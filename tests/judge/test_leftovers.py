"""Which memory nobody owns, read off the allocator's snapshot."""

from warpsmith.sandbox.cuda.leftovers import free_spans


def segment(address, *blocks):
    return {"address": address, "blocks": [{"size": size, "state": state} for size, state in blocks]}


def test_neighbours_are_joined_within_a_segment_only():
    used, free = "active_allocated", "inactive"
    snapshot = [
        segment(0x1000, (0x200, used), (0x200, free), (0x400, free), (0x800, used)),
        segment(0x2000, (0x1000, free)),
        segment(0x3000, (0x1000, free)),
        segment(0x4000, (0x200, "active_pending_free"), (0x200, free)),
    ]
    assert free_spans(snapshot) == [(0x1200, 0x600), (0x2000, 0x1000), (0x3000, 0x1000), (0x4200, 0x200)]


def test_nothing_is_free_where_everything_is_used():
    assert free_spans([segment(0x1000, (0x1000, "active_allocated"))]) == []
