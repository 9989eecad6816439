"""Shared by the tests of the rules: one compiler, candidates from text, and the regions of the family tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from warpsmith.kernels.records import Candidate, CompileReport, KernelStep, LaunchPlan
from warpsmith.tools.compile import Compiler

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "families"))  # regions, whatever the import mode


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


@pytest.fixture(scope="session")
def compile_text(compiler: Compiler) -> Callable[..., CompileReport]:
    """Compiles a free-form source that defines the kernel `k`."""

    def compile_source(source: str, *, cooperative: bool = False) -> CompileReport:
        step = KernelStep(
            kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0", {"i32": 3}), cooperative=cooperative
        )
        return compiler.compile(Candidate(source=source, plan=LaunchPlan(steps=(step,))))

    return compile_source
