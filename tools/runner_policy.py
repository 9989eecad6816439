"""What the processes that judge a problem may touch: its files, the compiled candidates, weights kept at home."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.live import read_facts
from warpsmith.kernels.problem import ProblemRef
from warpsmith.sandbox.isolation.policy import Policy
from warpsmith.sandbox.nvrtc import LIBRARY_VARIABLE
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.target import Target

READ_VARIABLE = "WARPSMITH_READ"
"""Environment variable naming further files and folders (separated by colons) that a problem needs."""

_WEIGHTS = {"TORCH_HOME": ".cache/torch", "HF_HOME": ".cache/huggingface"}
"""Environment variable -> the folder below home that stands for it: pretrained weights that a module loads."""


def runner_policy(target: Target, problem: ProblemRef | None = None, compiled: Path | None = None) -> Policy:
    """The policy of runners that judge `problem` on `target`; `compiled` is the cache that holds the candidates."""
    read = [str(compiled or default_cache_dir())]
    read += [os.environ.get(variable) or str(Path.home() / below) for variable, below in _WEIGHTS.items()]
    read += [path for path in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if path]
    if os.environ.get(LIBRARY_VARIABLE):
        # The library and what it loads, not all that may lie beside it.
        library = Path(os.environ[LIBRARY_VARIABLE]).absolute()
        read += [str(library), *sorted(map(str, library.parent.glob("libnvrtc*")))]
    read += [path for path in os.environ.get(READ_VARIABLE, "").split(os.pathsep) if path]
    folders: list[Path] = []
    if problem is not None:
        path = Path(problem.path).absolute()
        read += [str(path), str(path.resolve())]
        folders += _search_path(path) if problem.kind == "live" else [path.parent, path.resolve().parent]
    for folder in filter(_too_wide, folders):
        read += [str(path) for path in _importable(folder)]
    return Policy(
        read=tuple(dict.fromkeys(read)),
        folders=tuple(str(path) for path in dict.fromkeys(folders) if not _too_wide(path)),
        cache=str(_usable(default_cache_dir())),
        gpu=target.kind == "gpu" and target.backend is None,
    )


def _search_path(folder: Path) -> Iterable[Path]:
    """Where the caller of a saved module imported from; what this interpreter imports from is readable anyway."""
    try:
        facts = read_facts(folder)
    except UserError:
        return []
    named = [Path(entry) for entry in facts.search_path]
    named += [Path(entry).parent for entry in (facts.source_path, facts.main_path) if entry]
    own = {Path(entry).resolve() for entry in sys.path if entry}
    return [path for path in named if path.resolve() not in own]


def _too_wide(path: Path) -> bool:
    """The root, the folders of all users' temporary files and a home hold much that is no part of a problem."""
    return path in (Path("/"), Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir()), Path.home())


def _importable(folder: Path) -> list[Path]:
    """Modules and packages that lie in a folder."""
    try:
        return [*folder.glob("*.py"), *(path.parent for path in folder.glob("*/__init__.py"))]
    except OSError:
        return []


def _usable(cache: Path) -> Path:
    """The cache folder, made if need be; where it cannot be written, torch.compile's caches are temporary."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir())
    return cache if os.access(cache, os.W_OK) else Path(tempfile.gettempdir())
