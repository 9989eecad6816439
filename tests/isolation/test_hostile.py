"""Hostile candidates among good ones: every verdict right, and the good ones as without them."""

import pytest
from support.hostile import bombs, endless, floods, launches, samples, wild
from support.hostile_batch import run

from warpsmith.tools.evaluate import Limits
from warpsmith.tools.target import Target

TARGET = Target(kind="cpu", arch="sm_90")


def test_no_two_samples_are_the_same():
    found = samples()
    assert len(found) >= 40
    assert len({one.candidate.id for one in found}) == len({one.name for one in found}) == len(found)


def test_a_small_mix():
    hostile = [endless()[0], *wild()[:3], floods()[4], bombs()[0], bombs()[5], *launches()[:2], launches()[-3]]
    report = run(hostile, each=3, target=TARGET, compile_s=3.0, limits=Limits(), bodies=("softmax", "columns"))
    assert report.faults == []


@pytest.mark.slow
def test_the_whole_batch():
    report = run(samples(), each=12, target=TARGET, level="full", limits=Limits(verify_s=15.0))
    assert len(report.alone.outcomes) >= 40
    assert report.faults == []
