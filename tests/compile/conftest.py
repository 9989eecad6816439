"""Compilers for tests: one shared by a module, with a cache folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warpsmith.tools.compile import Compiler


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=2) as shared:
        yield shared
