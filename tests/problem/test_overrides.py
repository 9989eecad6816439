"""Overriding module-level constants: every way of binding a name, and what is refused."""

import dataclasses
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.overrides import run_module, settable

COUNT = iter(range(10_000))


def run(path: Path, source: str, **overrides: str) -> ModuleType:
    """Run `source` as a module under a name of its own."""
    path = path / "problem.py"
    path.write_text(source)
    return run_module(source, path, name=f"overrides_case_{next(COUNT)}", overrides=overrides)


BINDINGS = {
    "plain": "N = 4\nresult = N * 2",
    "annotated": "N: int = 4\nresult = N * 2",
    "augmented": "N = 2\nN *= 2\nresult = N * 2",
    "tuple unpacking": "N, M = 4, 5\nresult = N * 2",
    "star unpacking": "first, *rest, N = 1, 2, 3, 4\nresult = N * 2",
    "chained": "M = N = 4\nresult = N * 2",
    "walrus": "result = (N := 4) * 2",
    "walrus in a comprehension": "result = [(N := i) for i in (3, 4)][-1] * 2",
    "for target": "for N in (3, 4):\n    pass\nresult = N * 2",
    "with as": (
        "import contextlib\n@contextlib.contextmanager\ndef four():\n    yield 4\nwith four() as N:\n    result = N * 2"
    ),
    "conditional": "if True:\n    N = 4\nelse:\n    N = 5\nresult = N * 2",
    "conditional expression": "N = 4 if len('ab') == 2 else 3\nresult = N * 2",
    "try": "try:\n    import no_such_module_anywhere\nexcept ImportError:\n    N = 4\nresult = N * 2",
    "derived": "M = 2\nN = M * 2\nresult = N * 2",
    "global in a function": "def init():\n    global N\n    N = 4\n    assert N\ninit()\nresult = N * 2",
    "global, augmented": "N = 2\ndef grow():\n    global N\n    N += 2\ngrow()\nresult = N * 2",
    "global walrus": "def init():\n    global N\n    return (N := 4)\nresult = init() * 2",
    "global loop target": "def init():\n    global N\n    for N in (3, 4):\n        pass\ninit()\nresult = N * 2",
    "global at module level": "global N\nN = 4\nresult = N * 2",
    "deleted and bound again": "N = 3\ndel N\nN = 4\nresult = N * 2",
    "class attribute": "N = 4\nclass C:\n    size = N * 2\nresult = C.size",
    "default argument": "N = 4\ndef f(n=N):\n    return n * 2\nresult = f()",
    "comprehension": "N = 4\nresult = sum([N for _ in range(2)])",
    "generator in a function": "N = 4\ndef f():\n    return sum(N for _ in range(2))\nresult = f()",
    "lambda": "N = 4\nresult = (lambda: N * 2)()",
    "decorator argument": (
        "N = 4\ndef times(n):\n    return lambda f: lambda: n * f()\n@times(N)\ndef two():\n    return 2\n"
        "result = two()"
    ),
    "globals()": "N = 4\nresult = globals()['N'] * 2",
}


@pytest.mark.parametrize("source", BINDINGS.values(), ids=BINDINGS)
def test_every_binding_is_pinned_and_what_derives_from_it_follows(tmp_path: Path, source: str) -> None:
    assert run(tmp_path, source).__dict__["result"] == 8
    module = run(tmp_path, source, N="10")
    assert (module.__dict__["N"], module.__dict__["result"]) == (10, 20)


def test_functions_called_later_see_the_pinned_value(tmp_path: Path) -> None:
    module = run(tmp_path, "N = 4\ndef get():\n    return N", N="7")
    assert module.get() == 7


def test_a_function_called_later_cannot_undo_the_pin(tmp_path: Path) -> None:
    module = run(tmp_path, "N = 4\ndef reset():\n    global N\n    N = 5\n    return N", N="7")
    assert module.reset() == 7
    assert module.N == 7


def test_names_of_inner_scopes_are_left_alone(tmp_path: Path) -> None:
    source = (
        "N = 4\n"
        "def local():\n    N = 1\n    return N\n"
        "def outer():\n    global N\n    N = 9\n    def inner():\n        N = 2\n        return N\n    return inner()\n"
        "class C:\n    N = 3\n"
        "listed = [N for N in (5, 6)]\n"
    )
    module = run(tmp_path, source, N="7")
    assert (module.local(), module.outer(), module.C.N, module.listed, module.N) == (1, 2, 3, [5, 6], 7)


@pytest.mark.parametrize(
    ("source", "text", "value"),
    [
        ("N = 4.0", "3", 3.0),
        ("N = 'tanh'", "'none'", "none"),
        ("N = True", "False", False),
        ("N = (2, 3)", "(300,)", (300,)),
        ("N = [2, 3]", "[1]", [1]),
        ("N = None", "5", 5),
        ("N = -4", "-2", -2),
    ],
)
def test_values_of_the_same_type_are_taken(tmp_path: Path, source: str, text: str, value: object) -> None:
    module = run(tmp_path, source, N=text)
    assert value == module.N
    assert type(module.N) is type(value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("N = 4", "'four'"),
        ("N = 4", "4.5"),
        ("N = 4", "True"),
        ("N = True", "1"),
        ("N = (4,)", "4"),
        ("N = (4,)", "('a',)"),
        ("N = (4,)", "[4]"),
        ("N = 'a'", "1"),
    ],
)
def test_a_changed_type_is_refused_with_both_types(tmp_path: Path, source: str, text: str) -> None:
    with pytest.raises(UserError, match=r"--set N=.*same type"):
        run(tmp_path, source, N=text)


def test_a_changed_type_is_the_reason_given_even_if_the_file_then_fails(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="same type"):
        run(tmp_path, "N = 4\nM = range(N)", N="'four'")


def test_what_is_no_literal_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a literal constant"):
        run(tmp_path, "import math as N", N="3")


def test_an_unknown_name_lists_what_can_be_set(tmp_path: Path) -> None:
    source = "rows = 4\nshape = (2, 3)\n_hidden = 1\nimport os\ndef get_inputs():\n    return [8]\n"
    with pytest.raises(UserError) as caught:
        run(tmp_path, source, width="3")
    message = str(caught.value)
    assert "'width'" in message
    assert "rows=4, shape=(2, 3)" in message
    assert "_hidden" not in message
    assert "inside get_inputs() cannot be reached" in message
    assert str(tmp_path / "problem.py") in message


def test_a_name_rebound_behind_the_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be held"):
        run(tmp_path, "N = 4\nglobals()['N'] = 5", N="7")


@pytest.mark.parametrize("text", ["4 *", "f(3)", "N", ""])
def test_only_literals_are_taken(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="not a Python literal"):
        run(tmp_path, "N = 4", N=text)


def test_a_failure_with_overrides_names_line_and_settable_names(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        run(tmp_path, "N = 4\n\nif N > 5:\n    raise ValueError('too large')\n", N="7")
    assert "line 4" in str(caught.value)
    assert "too large" in str(caught.value)
    assert "N=7" in str(caught.value)


def test_a_failed_module_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text("1 / 0")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        run_module("1 / 0", tmp_path / "problem.py", name="overrides_failed", overrides={})
    assert "overrides_failed" not in sys.modules


def test_the_module_is_registered_for_dataclasses_and_pickle(tmp_path: Path) -> None:
    source = (
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int = 1\n\npoint = Point(3)\n"
    )
    module = run(tmp_path, source)
    assert pickle.loads(pickle.dumps(module.point)) == module.point
    assert dataclasses.asdict(module.point) == {"x": 3}


def test_a_helper_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "overrides_helper_beside.py").write_text("VALUE = 11\n")
    before = list(sys.path)
    assert run(tmp_path, "from overrides_helper_beside import *\nresult = VALUE").__dict__["result"] == 11
    assert sys.path == before


def test_settable_names_hold_literals_only(tmp_path: Path) -> None:
    module = run(tmp_path, "import math\nN = 4\nshape = (1, 2)\nf = len\nnested = {'a': [1, math]}\n_x = 1\n")
    assert settable(module.__dict__) == {"N": 4, "shape": (1, 2)}
