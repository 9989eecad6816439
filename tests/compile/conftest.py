"""Compilers for tests: one shared by a module, with a cache folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpsmith.tools.compile import Compiler

sys.path.insert(0, str(Path(__file__).parent))  # compile_samples, whatever the import mode


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=2) as shared:
        yield shared
