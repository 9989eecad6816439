"""How lanes divide a GPU's memory among the processes that use it at once."""

from __future__ import annotations

from dataclasses import dataclass

_CONTEXT_GB = 0.5
"""What CUDA keeps for a process beside what torch hands out."""
_SEATS, _SMALL, _LARGE = 0.76, 0.1, 0.14
"""Parts for the problems that are judged, and for torch.compile: of most modules, and of one that needs more."""
_LEAST_GB = 0.5


@dataclass(frozen=True, slots=True)
class Shares:
    """Bounds on the memory of a process, in GB (10^9 bytes) as the variable has them; empty: all there is."""

    whole: str = ""
    seat: str = ""
    """A problem that is judged or timed; there are as many at once as seats."""
    small: str = ""
    """A compile job; there are as many at once as lanes."""
    large: str = ""
    """A compile job that was refused with less; one at a time."""

    @classmethod
    def of(cls, total_gb: float, *, seats: int, lanes: int, whole: str = "") -> Shares:
        """Shares of a GPU with so much memory. A single lane does one thing after another, with all of it."""
        if lanes == 1:
            return cls(whole, whole, whole, whole)
        rest = max(0.0, total_gb - lanes * _CONTEXT_GB)
        parts = (_SEATS * rest / seats, _SMALL * rest / lanes, _LARGE * rest)
        return cls(whole, *(f"{max(_LEAST_GB, part):.3f}" for part in parts))
