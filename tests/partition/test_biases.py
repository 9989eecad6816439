"""A convolution's bias is added by the kernel behind it; a depthwise convolution keeps its own."""

from pathlib import Path

import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.interpret import interpret
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.biases import with_split_biases
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.problem import live_problem

X = torch.randn(2, 8, 9, 7)
LAYERS = {
    "plain": torch.nn.Conv2d(8, 6, 3, padding=1, stride=2),
    "grouped": torch.nn.Conv2d(8, 16, 3, groups=4),
    "transposed": torch.nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1),
}


def graph_of(layer: torch.nn.Module, folder: Path) -> OpGraph:
    return capture(live_problem(torch.nn.Sequential(layer, torch.nn.ReLU()), [X], folder=folder))


@pytest.mark.parametrize("name", LAYERS)
def test_the_bias_joins_the_kernel_behind(name: str, tmp_path: Path) -> None:
    found = compose(graph_of(LAYERS[name], tmp_path), model_for("sm_90"))
    steps = [part.step for part in found.parts if hasattr(part, "step")]
    assert [step.library for step in steps] == ["convolution"]
    assert not any("bias" in str(value) for value in (*steps[0].args, *steps[0].kwargs.values()))
    assert len(found.kernels) == len(found.parts) - 1 == 1


@pytest.mark.parametrize("name", LAYERS)
def test_the_values_are_the_same(name: str, tmp_path: Path) -> None:
    layer = LAYERS[name]
    graph = graph_of(layer, tmp_path)
    split = with_split_biases(graph)
    assert len(split.nodes) == len(graph.nodes) + 2
    parameters = {f"0.{key}": value for key, value in layer.named_parameters()}
    with torch.no_grad():
        (result,) = interpret(split, [X], parameters)
        torch.testing.assert_close(result, torch.relu(layer(X)))


def test_a_depthwise_convolution_keeps_its_bias(tmp_path: Path) -> None:
    graph = graph_of(torch.nn.Conv2d(8, 8, 3, groups=8), tmp_path)
    assert with_split_biases(graph) is graph
