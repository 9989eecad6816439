"""What every test may rely on: worker processes are forks of one per test process that has made the imports."""

import os
import signal
from collections.abc import Iterator

import pytest

# Before torch and numpy are loaded: their threads wait by spinning, and several test processes share the cores. On two
# cores a token of the tiny model takes 25 ms with two threads and 1 ms with one.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from warpsmith.sandbox.stem import imports_kept  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts in the background so, and commands keep ignoring what their parent ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def imports_made_once() -> Iterator[None]:
    """Starting a worker takes a tenth of a second instead of the two that importing torch takes."""
    with imports_kept():
        yield


LONGEST = (
    "redteam/test_redteam", "suite/test_bench", "app/test_bad_input", "mutation", "endurance", "app/test_commands",
    "redteam", "hidden", "judge", "app", "isolation", "insight", "problem/test_capture", "graph", "lowering",
    "families", "compile",
)  # fmt: skip
"""Beginnings of paths, those whose tests take longest first: a process that has one left at the end keeps the others
waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts long files first. Files stay together."""

    def place(item: pytest.Item) -> int:
        path = item.nodeid.removeprefix("tests/")
        return next((n for n, beginning in enumerate(LONGEST) if path.startswith(beginning)), len(LONGEST))

    items.sort(key=place)
