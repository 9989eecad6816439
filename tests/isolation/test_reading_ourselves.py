"""Runners read the package itself wherever its folders lie."""

import importlib
from pathlib import Path

from warpsmith.sandbox.isolation.policy import interpreter_paths


def test_every_room_of_the_package_is_readable():
    allowed = interpreter_paths()
    for name in ("kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl", "app"):
        (where,) = importlib.import_module(f"warpsmith.{name}").__path__
        home = Path(where).resolve()
        assert any(home.is_relative_to(path) for path in allowed), f"{name} lies at {home}"
