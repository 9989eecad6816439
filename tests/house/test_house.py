"""The house itself: layers, sizes, packaging and the public names."""

import gc
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl", "app")


def script(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def no_finalizers() -> Iterator[None]:
    """What other tests left may fail as it is collected; see `warpsmith.kernels.syntax`."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_every_import_goes_downward() -> None:
    assert script("check_layers.py").violations(ROOT) == []


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("kernels", "from warpsmith.tools import compile"),
        ("kernels", "from warpsmith import app"),
        ("tools", "import warpsmith.graph.run"),
        ("sandbox", "from . import backend"),
        ("agents", "import kernels.slots"),
    ],
)
def test_an_upward_import_is_found(tmp_path: Path, folder: str, line: str) -> None:
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    (tmp_path / folder / "bad.py").write_text(line + "\n")
    assert len(script("check_layers.py").violations(tmp_path)) == 1


def test_no_function_or_file_is_too_long() -> None:
    sizes = script("check_size.py")
    files = [p for folder in (*FOLDERS, "src", "tests", "scripts") for p in (ROOT / folder).rglob("*.py")]
    assert [line for path in files for line in sizes.oversized(path)] == []


def test_a_long_function_and_a_long_file_are_found(tmp_path: Path) -> None:
    sizes = script("check_size.py")
    path = tmp_path / "long.py"
    path.write_text("def f():\n" + "    x = 1\n" * 601)
    assert len(sizes.oversized(path)) == 2


def test_the_set_up_picks_the_group_by_driver() -> None:
    extra_for = script("pick_extra").extra_for
    assert [extra_for(d) for d in (None, 470, 525, 579, 580, 600)] == [
        "cpu",
        "cpu",
        "cuda12",
        "cuda12",
        "cuda13",
        "cuda13",
    ]


def test_public_names_resolve_and_no_folder_leaks() -> None:
    code = (
        "import sys, warpsmith\n"
        "assert all(hasattr(warpsmith, name) for name in warpsmith.__all__)\n"
        f"leaked = [n for n in {FOLDERS!r} if n in sys.modules]\n"
        "assert not leaked, leaked\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, cwd=ROOT / "tests")


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom warpsmith.app.cli import app\nfrom typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['optimize', '--help']).exit_code == 0\n"
        "heavy = {'torch', 'numpy', 'openai', 'langgraph', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_the_readme_is_short_and_names_both_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(re.findall(r"\S+", text)) <= 600
    assert "make demo" in text
    assert "make test" in text
