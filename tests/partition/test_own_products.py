"""Products within a composite: a kernel of ours where moving takes longer than multiplying, a library elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from emulated import differences

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.composite import Composite, LibraryPart
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import COMPOSER, specs_for
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")
STATES = """
import torch

batch, steps, heads, width, states = 6, 32, 4, 24, 8


class Model(torch.nn.Module):
    def forward(self, x, b, a):
        summed = a.cumsum(1)
        decay = torch.exp(summed[:, -1:] - summed)
        return torch.einsum("bshn,bsh,bshp->bhpn", b, decay, x)


def get_inputs():
    places = batch, steps, heads
    return [torch.rand(*places, width), torch.rand(*places, states), -torch.rand(places)]


def get_init_inputs():
    return []
"""
"""The states of a chunk of a state-space model: operands lie across the product's axes and are scaled on the way."""


def problem(folder: Path, **sizes: int) -> Problem:
    path = folder / "states.py"
    path.write_text(STATES)
    return load_problem(str(path), overrides={name: str(size) for name, size in sizes.items()})


def libraries(whole: Composite) -> list[str]:
    return [part.step.library for part in whole.parts if isinstance(part, LibraryPart)]


def test_operands_that_are_made_on_the_way_are_made_within_the_product(tmp_path: Path) -> None:
    whole = compose(capture(problem(tmp_path, batch=2048, width=64)), DEVICE)
    assert libraries(whole) == []
    assert whole.products
    assert [kernel.family for kernel in whole.kernels].count("gemm") == 1
    assert len(whole.parts) == 2


def test_a_product_that_multiplies_longer_than_it_moves_is_a_librarys(tmp_path: Path) -> None:
    whole = compose(capture(problem(tmp_path, steps=2048, width=1024, states=1024)), DEVICE)
    assert len(libraries(whole)) == 1
    assert whole.products == ()


def test_own_products_give_what_eager_gives_and_stay_so_at_other_sizes(tmp_path: Path) -> None:
    declared = problem(tmp_path)
    spec = spec_for(COMPOSER, compose(capture(declared), DEVICE), DEVICE)
    assert spec.region.products
    candidate = spec.emit(spec.sensible() | ({"launch": "steps"} if "launch" in spec.naive else {}))
    other = problem(tmp_path, batch=3, steps=19, width=17, states=5)
    there = carried(spec, candidate, capture(other))
    assert isinstance(there, Candidate)
    with Compiler("sm_90", cache_dir=tmp_path / "cache", jobs=1) as compiler:
        assert max(differences(declared, candidate, compiler)) < 1e-4
        assert max(differences(other, there, compiler)) < 1e-4


@pytest.mark.parametrize("line", ["torch.exp(a)", "a"])
def test_what_leads_to_an_operand_is_paid_for(tmp_path: Path, line: str) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, a, b):\n"
        f"        return {line} @ b\n\n\ndef get_inputs():\n"
        "    return [torch.rand(256, 64, 64), torch.rand(256, 64, 256)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    ways = plan(capture(load_problem(str(path))), device=DEVICE).ways
    spec = next(spec for way in ways for spec in specs_for(way, DEVICE) if spec.family.name == "gemm")
    tile = {"tile_m": 64, "tile_n": 64, "thread_m": 4, "thread_n": 4, "split_k": 1}
    (launch,) = spec.features(spec.sensible() | tile)
    # Four tiles side by side take the left operand in, each anew.
    assert launch.special_ops == (4 * 256 * 64 * 64 if "exp" in line else 0)
