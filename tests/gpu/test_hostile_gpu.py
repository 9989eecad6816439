"""Hostile candidates among good ones on a GPU: every verdict right, and the good ones as without them."""

import pytest
from support.hostile import samples
from support.hostile_batch import run

from warpsmith.sandbox.cuda.facts import device_model
from warpsmith.tools.evaluate import Limits
from warpsmith.tools.target import Target

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


def test_the_whole_batch(monkeypatch):
    monkeypatch.setenv("WARPSMITH_LAUNCH_TIMEOUT_S", "2")
    target = Target(kind="gpu", arch=device_model().arch)
    limits = Limits(verify_s=60.0)
    report = run(
        samples(), each=10, target=target, limits=limits, compile_s=10.0, rows=512, cols=4096, launch_s=2.0,
        bodies=("softmax", "columns"),
    )  # fmt: skip
    assert report.faults == []
