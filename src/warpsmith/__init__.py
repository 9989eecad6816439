"""Warpsmith turns PyTorch modules into fast CUDA kernels that are verified at every step.

The public names load lazily, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpsmith.app.api import optimize
    from warpsmith.kernels.problem import load_problem
    from warpsmith.sandbox.stem import imports_kept

__version__ = "0.1.0"
__all__ = ["__version__", "imports_kept", "load_problem", "optimize"]

_HOMES = {
    "imports_kept": "warpsmith.sandbox.stem",
    "load_problem": "warpsmith.kernels.problem",
    "optimize": "warpsmith.app.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'warpsmith' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
