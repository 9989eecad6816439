"""What is compiled while others time something is what torch.compile finds later, and runs in turns only."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.utils import counters

from warpsmith.tools.measurement.contenders import compiled
from warpsmith.tools.measurement.quiet_compile import Gate


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2


def test_what_is_compiled_in_turns_is_found_by_torch_compile(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    module, x = Scaled(), torch.randn(8, 8)
    turns, within = 0, False

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        nonlocal turns, within
        assert not within
        turns, within = turns + 1, True
        yield
        within = False

    torch._dynamo.reset()
    gate = Gate(turn)
    made = compiled(module, "compile", (x,), gate)
    assert not isinstance(made, str), made
    assert turns == 3
    # Who has the device already runs it without asking for a turn.
    gate.open = True
    with torch.no_grad():
        torch.testing.assert_close(made(x), module(x))
    assert turns == 3
    torch._dynamo.reset()
    counters.clear()
    again = compiled(module, "compile", (x,))
    assert counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"] >= 1
    assert counters["inductor"]["fxgraph_cache_miss"] == 0
    with torch.no_grad():
        torch.testing.assert_close(again(x), module(x))
    torch._dynamo.reset()
