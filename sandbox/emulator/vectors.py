"""The type of lane vectors."""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A numpy array. numpy's own stubs answer `Any` for most operators on arrays of unknown element type, so that a
narrower name would promise a check that does not take place."""
