"""Numbers in the environment: used, absent, or refused with the remedy."""

import pytest

from warpsmith.agents.llm.client import Timeouts
from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.cuda.deadline import USUAL_S, launch_timeout_s
from warpsmith.sandbox.cuda.memory import limit_bytes


def test_what_is_set_holds_and_what_is_not_is_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARPSMITH_LAUNCH_TIMEOUT_S", "WARPSMITH_GPU_MEMORY_GB", "WARPSMITH_REPLY_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)
    assert (launch_timeout_s(), limit_bytes(), Timeouts.usual()) == (USUAL_S, None, Timeouts())
    monkeypatch.setenv("WARPSMITH_LAUNCH_TIMEOUT_S", "2.5")
    monkeypatch.setenv("WARPSMITH_GPU_MEMORY_GB", "24")
    monkeypatch.setenv("WARPSMITH_REPLY_TIMEOUT_S", "7")
    assert (launch_timeout_s(), limit_bytes()) == (2.5, 24 * 10**9)
    assert (Timeouts.usual().silence_s, Timeouts.usual().total_s) == (7.0, 7.0)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much"])
def test_what_is_no_positive_number_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name, read in (
        ("WARPSMITH_LAUNCH_TIMEOUT_S", launch_timeout_s),
        ("WARPSMITH_GPU_MEMORY_GB", limit_bytes),
        ("WARPSMITH_REPLY_TIMEOUT_S", Timeouts.usual),
    ):
        monkeypatch.setenv(name, text)
        with pytest.raises(UserError, match=f"^{name}={text}: give a .* or unset it"):
            read()


def test_the_least_of_the_gpus_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_GPU_MEMORY_GB", "0.4")
    with pytest.raises(UserError, match=r"at least 0\.5"):
        limit_bytes()
