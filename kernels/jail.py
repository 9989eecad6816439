"""Whether this process is a confined one, which alone may run a module that a model wrote."""

from __future__ import annotations

_profile: str | None = None


def enter(profile: str) -> None:
    """Called once, by a process that has put on its layers: `strict`, `user` or `bare`."""
    global _profile
    _profile = profile


def inside() -> bool:
    """Whether the layers are there. A `bare` process has none."""
    return _profile in ("strict", "user")
