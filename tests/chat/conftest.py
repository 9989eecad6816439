"""One session in a pseudo-terminal from its start to its end; several tests read what it showed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.problems import problem
from support.terminal import Terminal

Open = Callable[..., Terminal]


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small problem; everything of this folder's tests shares its compile cache."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "p.py").write_text(problem("torch.relu(x) * 2"))
    return folder


@pytest.fixture
def chat(desk: Path) -> Open:
    """`warpsmith chat` in a terminal of its own."""

    def open_(*words: str, **more: object) -> Terminal:
        return Terminal("chat", *words, cwd=desk, **more)  # type: ignore[arg-type]

    return open_
