"""Where the state spaces lie in generic addresses, and what a block's threads see as sizes."""

SHARED_WINDOW = 1 << 60
"""Generic address of shared offset 0. Global addresses are those of the host and lie far below."""
LOCAL_WINDOW = 1 << 61
"""Generic address of local offset 0."""
CLUSTER_SHIFT = 24
"""Shared offsets of another block of the cluster carry its rank plus one above this bit; without, a block's own."""
