"""What the compiler made is held to the policy: every rule by a source that compiles, and neighbours that pass."""

from __future__ import annotations

import pytest
from rule_samples import HONEST, REFUSED, kernel


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_a_rule_is_refused(name, compile_text):
    kind, source = REFUSED[name]
    report = compile_text(source)
    assert report.failure is not None
    assert (report.failure.stage, report.failure.kind) == ("rules", kind), report.failure
    assert not report.ok


@pytest.mark.parametrize("name", HONEST)
def test_neighbours_pass(name, compile_text):
    report = compile_text(HONEST[name])
    assert report.failure is None, report.failure


def test_grid_barrier_of_a_cooperative_launch_passes(compile_text):
    body = "cooperative_groups::this_grid().sync(); y[0] = n;"
    report = compile_text(kernel(body, "#include <cooperative_groups.h>"), cooperative=True)
    assert report.failure is None, report.failure
