"""Graphs that one region does not cover are refused by a message that names the node."""

from __future__ import annotations

import pytest
import torch
from lowering.graphs import Recorder, graph_of

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.lowering.lower import lower


@pytest.mark.parametrize(
    ("function", "shapes", "words"),
    [
        ("two_softmaxes", ["5,7"], ["several regions", "amax"]),
        ("distance_loss", ["5,7", "5,7"], ["several regions", "sum"]),
        ("rows_and_columns", ["5,7"], ["several regions"]),
        ("linear_softmax", ["5,7", "6,7"], ["several regions", "amax", "mm"]),
        ("norm_linear", ["5,7", "6,7"], ["several regions", "sum", "mm"]),
        ("two_products", ["5,5", "5,5"], ["several regions", "second matmul"]),
        ("ordered", ["5,7"], ["sort", "not covered yet"]),
        ("scan_of_softmax", ["5,7"], ["several regions", "amax", "cumsum"]),
        ("last_of_a_scan", ["5,7"], ["several regions", "35 elements"]),
        ("two_scans", ["5,7"], ["several regions", "second scan"]),
        ("two_pools", ["2,3,4,6"], ["several regions", "second window"]),
        ("convolution", ["2,3,4,6", "5,3,3,3"], ["convolution", "not covered yet"]),
        ("unlike_outputs", ["5,7"], ["several regions", "14 elements"]),
    ],
)
def test_the_message_names_the_node(function: str, shapes: list[str], words: list[str]) -> None:
    with pytest.raises(NotYetError) as refusal:
        lower(graph_of(function, *shapes))
    assert [word for word in words if word not in str(refusal.value)] == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.int16, torch.uint8])
def test_tensors_of_other_types_are_named(dtype: torch.dtype) -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.ones(4, 5).to(dtype))
    with pytest.raises(NotYetError, match=r"in0.*is \w*" + str(dtype).removeprefix("torch.")):
        lower(recorder.finish(recorder.op("ne", leaf, 0)).graph)


def test_intermediates_of_other_types_are_named() -> None:
    recorder = Recorder()
    half = recorder.op("to_copy", recorder.input(torch.ones(4, 5)), dtype="float64")
    with pytest.raises(NotYetError, match=r"to_copy_0 .*float64"):
        lower(recorder.finish(recorder.op("mul", half, 2.0)).graph)


def test_empty_tensors_are_refused() -> None:
    recorder = Recorder()
    with pytest.raises(NotYetError, match="no elements"):
        lower(recorder.finish(recorder.op("exp", recorder.input(torch.ones(0, 5)))).graph)


def test_a_node_that_no_output_needs_does_not_matter() -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.ones(4, 5))
    kept = recorder.op("exp", leaf)
    recorder.op("digamma", leaf)
    assert lower(recorder.finish(kept).graph).stores[0].numel == 20
