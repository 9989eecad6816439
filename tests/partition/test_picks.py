"""Gathers of one element a row as masked sums: the same values, other gathers left, and losses without a library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.partition.emulated import differences
from warpsmith.kernels.capture import capture
from warpsmith.kernels.composite import Composite, LibraryPart
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import family_named
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.interpret import interpret
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.partition.picks import with_picks
from warpsmith.kernels.problem import live_problem
from warpsmith.tools.compile import Compiler

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
F = torch.nn.functional
ROWS, CLASSES = 9, 37
PICKED: dict[str, Loss] = {
    "cross entropy": F.cross_entropy,
    "one loss a row": lambda x, y: F.cross_entropy(x, y, reduction="none", ignore_index=3),
    "smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "weighted": lambda x, y: F.cross_entropy(x, y, weight=torch.arange(1.0, CLASSES + 1)),
    "columns": lambda x, y: torch.exp(x.t().contiguous() * 0.5).gather(0, y[None]),
    "halves": lambda x, y: x.half().gather(1, y[:, None]),
    "alone": lambda x, y: x.gather(1, y[:, None]),
    "beside its row": lambda x, y: (x * x[:, :1]).gather(1, y[:, None]),
}
LEFT: dict[str, Loss] = {
    "several a row": lambda x, y: x.gather(1, y[:, None].expand(ROWS, 4)),
    "fewer rows": lambda x, y: x.gather(1, y[:4, None]),
    "whole numbers": lambda x, y: (x > 0).long().gather(1, y[:, None]),
    "other rows": lambda x, y: x[y],
}


class Losing(torch.nn.Module):
    """One of the table."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (PICKED | LEFT)[self.name](x, y)


def inputs() -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(4)
    y = torch.randint(0, CLASSES, (ROWS,), generator=drawn)
    y[0], y[1], y[2] = 3, 0, CLASSES - 1
    return [torch.randn((ROWS, CLASSES), generator=drawn), y]


@pytest.mark.parametrize("name", PICKED)
def test_a_masked_sum_is_the_element(name: str, tmp_path: Path) -> None:
    x, y = inputs()
    x[4, (int(y[4]) + 1) % CLASSES], x[5, int(y[5])] = -float("inf"), float("nan")
    found = with_picks(capture(live_problem(Losing(name), [x, y], folder=tmp_path)))
    assert found is not None
    assert not any(node.op == "gather" for node in found.nodes)
    (result,) = interpret(found, [x, y], {})
    torch.testing.assert_close(result, PICKED[name](x, y), equal_nan=True)


@pytest.mark.parametrize("name", LEFT)
def test_other_gathers_are_left(name: str, tmp_path: Path) -> None:
    assert with_picks(capture(live_problem(Losing(name), inputs(), folder=tmp_path))) is None


def test_an_index_outside_of_the_row_gives_nan(tmp_path: Path) -> None:
    x, y = inputs()
    found = with_picks(capture(live_problem(Losing("one loss a row"), [x, y], folder=tmp_path)))
    assert found is not None
    y[4], y[5], y[6] = CLASSES, -1, 2**32
    (result,) = interpret(found, [x, y], {})
    assert result.isnan().nonzero().flatten().tolist() == [4, 5, 6]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


@pytest.mark.parametrize("name", ["cross entropy", "one loss a row"])
def test_a_loss_needs_no_library(name: str, compiler: Compiler, tmp_path: Path) -> None:
    problem = live_problem(Losing(name), inputs(), folder=tmp_path)
    device = model_for("sm_90")
    whole = compose(capture(problem), device)
    assert isinstance(whole, Composite)
    assert not any(isinstance(part, LibraryPart) for part in whole.parts)
    spec = spec_for(family_named("composer"), whole, device)
    assert max(differences(problem, spec.emit(spec.sensible()), compiler)) < 1e-5


def test_a_gather_that_no_kernel_sweeps_stays_a_library_call(tmp_path: Path) -> None:
    """Reading a table of rows to find one element of each is what a gather spares."""
    x, y = torch.randn(4096, 4096), torch.randint(0, 4096, (4096,))
    problem = live_problem(Losing("alone"), [x, y], folder=tmp_path)
    whole = compose(capture(problem), model_for("sm_90"))
    assert any(isinstance(part, LibraryPart) for part in whole.parts)
