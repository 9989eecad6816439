"""What a reference module that a model wrote may say: honest ones pass, every way out is refused unseen."""

import ast
import math
from pathlib import Path

import pytest
import torch
from reference.modules import ATTEMPTS, HONEST, module

from warpsmith.kernels.overrides import run_module
from warpsmith.kernels.reference.guard import check_whole
from warpsmith.kernels.reference.names import SPACES, TENSOR_METHODS, TENSOR_VALUES
from warpsmith.kernels.reference.parts import Broken
from warpsmith.kernels.reference.rules import reference_hash, refuse_reference


@pytest.mark.parametrize("name", HONEST)
def test_honest_modules_pass_and_run(name: str, tmp_path: Path) -> None:
    text = HONEST[name]
    assert refuse_reference(text) is None
    made = run_module(text, tmp_path / "m.py", name=f"honest_{abs(hash(name))}", overrides={})
    model = made.Model(*made.get_init_inputs())
    model(*made.get_inputs())


@pytest.mark.parametrize("name", ATTEMPTS)
def test_ways_out_are_refused_with_their_line(name: str) -> None:
    breach = refuse_reference(ATTEMPTS[name])
    assert breach is not None
    assert breach.line >= 1
    assert str(breach).startswith(f"line {breach.line}: ")


@pytest.mark.parametrize(
    "name",
    [
        *("comprehension name called", "comprehension name as key", "comprehension name kept", "other branch"),
        *("Tensor as a value", "Tensor called", "Tensor renamed", "Tensor default", "init as a value", "super star"),
        *(
            "class as a value",
            "module's loader",
            "aliased function",
            "argument",
            "for name",
            "walrus",
            "lambda argument",
        ),
        *(
            "helper as a value",
            "helper as a key",
            "helper kept",
            "helper in Sequential",
            "helper stored",
            "helper as an argument",
        ),
        *("helper with self", "method as a value", "method as a key", "method of another", "method of a submodule"),
        *("self assigned", "self imported", "typing as a value", "typing called", "typing as a base"),
        *(
            "generator's frame",
            "generator's frame set elsewhere",
            "generator sent to",
            "starred function",
            "starred name",
        ),
    ],
)
def test_the_second_look_refuses_alone(name: str) -> None:
    with pytest.raises(Broken):
        check_whole(ast.parse(ATTEMPTS[name]))


@pytest.mark.parametrize("name", HONEST)
def test_the_second_look_lets_honest_modules_pass(name: str) -> None:
    check_whole(ast.parse(HONEST[name]))


def test_there_are_enough_of_both() -> None:
    assert len(HONEST) >= 15
    assert len(ATTEMPTS) >= 40


def test_the_lists_name_what_exists() -> None:
    homes = {
        **{"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional},
        **{"torch.nn.init": torch.nn.init, "torch.linalg": torch.linalg, "torch.special": torch.special},
        "math": math,
    }
    for space, (functions, values) in SPACES.items():
        assert [name for name in functions | values if not hasattr(homes[space], name)] == []
    assert [name for name in TENSOR_METHODS | TENSOR_VALUES if not hasattr(torch.Tensor, name)] == []


def test_the_hash_is_of_the_exact_text() -> None:
    text = HONEST["softmax"]
    assert reference_hash(text) != reference_hash(text + "\n")


@pytest.mark.parametrize("text", ["", "\n", "x", "(", "é" * 30_000, "class Model: pass", "def get_inputs(): pass"])
def test_what_is_no_module_is_refused(text: str) -> None:
    assert refuse_reference(text) is not None


BYTES = "f'''{b\"\"\"\n\"\"\"}'''"
"""Python cannot spell this expression once it is parsed."""


@pytest.mark.parametrize(
    "text",
    [
        module(f"return {BYTES}"),
        module("return x").replace("(self, x)", f"(self, x={BYTES})"),
        module("return x").replace("(self, x)", f"(self, x: {BYTES})"),
        f"A = {BYTES}\n" + module("return x"),
        f"del x[{BYTES}]\n" + module("return x"),
        module(f"x.T[{BYTES}].q = 1\nreturn x"),
        module(f"return (x if {BYTES} else x)(1)"),
        module("return x").replace("    def forward", f"    y = {BYTES}\n\n    def forward"),
    ],
)
def test_what_cannot_be_spelled_is_refused_all_the_same(text: str) -> None:
    breach = refuse_reference(text)
    assert breach is not None
    assert "could not be checked" not in breach.message


def test_a_text_that_does_not_compile_names_its_line() -> None:
    assert str(refuse_reference(module("return x\nbreak"))).startswith("line 10: not Python: 'break' outside loop")
