"""How long samples are taken: until ratios are known, or time is up, or what disturbed them has passed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from warpsmith.tools.measurement.timing import rounds_until


@dataclass
class Recorded:
    """Times of a kernel and a baseline, the first so many of which something else on the device has made longer."""

    disturbed: int
    samples: dict[str, list[float]] = field(default_factory=lambda: {"candidate": [], "eager": []})

    def round(self) -> None:
        count = len(self.samples["eager"])
        for name, us in (("candidate", 100.0), ("eager", 150.0)):
            # Whose turn it is when the other one runs is chance.
            doubled = count < self.disturbed and count % 2 == (name == "eager")
            self.samples[name].append(us * (2.0 if doubled else 1.0) + 0.01 * (count % 3))


def taken(disturbed: int, latest: float) -> int:
    recorded = Recorded(disturbed)
    assert rounds_until(recorded, 0.0, "candidate", latest) is None
    return len(recorded.samples["candidate"])


def test_steady_times_end_with_the_budget():
    assert taken(0, math.inf) == 4
    assert taken(0, 0.0) == 1


def test_disturbed_times_are_taken_until_it_has_passed():
    assert 12 < taken(6, math.inf) <= 30


def test_what_does_not_pass_ends_in_time():
    assert taken(1000, 0.0) == 1
    assert taken(1000, math.inf) == 100
