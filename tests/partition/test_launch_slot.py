"""How a composite's steps reach the device: a slot of the composer's, priced by the host's time against copies."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from modules import written

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.cost import breakdown, estimate_us, total_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate

DEVICE = model_for("sm_90")
STEPS, GRAPH = {"launch": "steps"}, {"launch": "graph"}


def network(path: Path, layers: int, width: int, rows: int) -> KernelSpec:
    """Products with something in between that no product takes in."""
    path.write_text(f"""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList([nn.Linear({width}, {width}) for _ in range({layers})])

    def forward(self, x):
        for layer in self.l:
            x = torch.softmax(layer(x), dim=1)
        return x


def get_inputs():
    return [torch.randn({rows}, {width})]


def get_init_inputs():
    return []
""")
    return spec_for(COMPOSER, compose(capture(load_problem(str(path))), DEVICE), DEVICE)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> KernelSpec:
    """Many steps on little data."""
    return network(tmp_path_factory.mktemp("deep") / "deep.py", layers=12, width=16, rows=8)


def test_many_short_steps_are_a_graph_and_few_long_ones_are_not(deep: KernelSpec, tmp_path: Path) -> None:
    long = network(tmp_path / "long.py", layers=1, width=512, rows=65536)
    assert deep.naive["launch"] == long.naive["launch"] == "steps"
    assert (deep.sensible()["launch"], long.sensible()["launch"]) == ("graph", "steps")
    for spec, cheaper, dearer in ((deep, GRAPH, STEPS), (long, STEPS, GRAPH)):
        assert estimate_us(spec, spec.sensible() | cheaper) < estimate_us(spec, spec.sensible() | dearer)


def test_steps_cost_the_hosts_time_and_a_graph_its_copies(deep: KernelSpec) -> None:
    values = deep.sensible()
    steps, graph = (deep.features(values | way) for way in (STEPS, GRAPH))
    host = sum(launch.host_us for launch in steps)
    assert all(launch.host_us > 0 for launch in steps)
    *_, last = alone = breakdown(steps, DEVICE)
    # The host is behind: the device has nothing left to do when the last step reaches it.
    assert host > sum(one.total_us for one in alone)
    assert total_us(alone) == pytest.approx(host + last.total_us)
    ahead = [replace(one, total_us=10 * one.host_us) for one in alone]
    assert total_us(ahead) == pytest.approx(10 * host + alone[0].host_us)
    copies = graph[len(steps) :]
    assert [copy.dram_read for copy in copies] == [copy.dram_written for copy in copies] == [4 * 8 * 16] * 2
    assert [launch.kernel for launch in graph[: len(steps)]] == [launch.kernel for launch in steps]
    assert not any(launch.host_us for launch in graph[: len(steps)])


def test_the_slot_changes_the_plan_and_no_line_of_source(deep: KernelSpec) -> None:
    before, after = (deep.emit(deep.naive | way) for way in (STEPS, GRAPH))
    assert (before.plan.graph, after.plan.graph) == (False, True)
    assert before.source == after.source
    assert before.plan == after.plan.model_copy(update={"graph": False})
    assert before.id != after.id
    assert differences_elsewhere(before, after, ["launch"]) == ()
    other = next(slot.name for slot in deep.slots if slot.kind == "code")
    assert "launch plan" in differences_elsewhere(before, after, [other])


def test_a_graph_is_carried_to_other_sizes(tmp_path: Path) -> None:
    path = written(tmp_path, "mlp")
    path.write_text(path.read_text().replace("torch.randn(5, 24)", "torch.randn(n, 24)") + "\n\nn = 5\n")
    spec = spec_for(COMPOSER, compose(capture(load_problem(str(path))), DEVICE), DEVICE)
    there = carried(spec, spec.emit(spec.naive | GRAPH), capture(load_problem(str(path), overrides={"n": "9"})))
    assert isinstance(there, Candidate)
    assert there.plan.graph


def test_a_library_call_alone_has_the_choice_and_a_kernel_alone_has_none(tmp_path: Path) -> None:
    path = tmp_path / "alone.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, a, b):\n        return BODY\n\n\n"
        "def get_inputs():\n    return [torch.rand(8, 8), torch.rand(8, 8)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    template = path.read_text()
    found = []
    for body in ("a @ b", "a * b"):
        path.write_text(template.replace("BODY", body))
        spec = spec_for(COMPOSER, compose(capture(load_problem(str(path))), DEVICE), DEVICE)
        assert len(spec.region.parts) == 1
        assert not spec.emit(spec.sensible()).plan.graph
        found.append(spec.naive.get("launch"))
    assert found == ["steps", None]
