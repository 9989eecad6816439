"""Plans that are recorded once and replayed: copies in and out, what is left between runs, what fails. On a device that
replays by running the steps again."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from warpsmith.kernels.records import Buffer, Failure, LaunchPlan, LibraryStep, Outcome, VerifyReport
from warpsmith.sandbox.backend import with_views
from warpsmith.sandbox.cuda.backend import LoadedCuda
from warpsmith.sandbox.cuda.bound import Bound, LaunchFailed, LaunchRefused
from warpsmith.sandbox.cuda.library import LibraryError, library_call
from warpsmith.sandbox.cuda.recording import Fixed, Recording, Replayed, key_of
from warpsmith.tools.outcomes import verified

PLAN = LaunchPlan(
    buffers={"t": Buffer(dtype="float32", shape=(4, 5))}, graph=True,
    steps=(
        LibraryStep(library="mm", args=("in0", "param:w"), out="t"),
        LibraryStep(library="addmm", args=("t", "in0", "param:w"), out="out0"),
    ),
)  # fmt: skip
WEIGHT = torch.rand(3, 5)


class Repeating:
    """A device that records by keeping what it is to enqueue."""

    def __init__(self, *, refuses: Exception | None = None, ends: Failure | None = None) -> None:
        self.refuses, self.ends = refuses, ends
        self.within = False
        self.events: list[str] = []

    def finish(self) -> Failure | None:
        self.events.append("finish")
        return self.ends

    def capturing(self) -> bool:
        return self.within

    def recorded(self, enqueue):
        self.events.append("record")
        if self.refuses is not None:
            try:
                raise self.refuses
            finally:
                # As the end of a capture does: it says only that there was an error.
                raise RuntimeError("operation failed due to a previous error during capture")
        return lambda: (self.events.append("replay"), enqueue())

    def keep_prepared(self) -> None:
        self.events.append("keep")

    def renew(self) -> None:
        self.events.append("renew")


def bind(arguments):
    values = with_views(PLAN, {"t": torch.zeros(4, 5), **arguments})
    return Bound([], [library_call(step, values) for step in PLAN.steps])


def arguments(**more):
    return {"in0": torch.rand(4, 3), "param:w": WEIGHT, "out0": torch.full((4, 5), torch.nan), **more}


def replayed(device, given, recording=None):
    recording = recording or Recording(given, bind)
    return Replayed(recording, given, device=device, state=device, directly=lambda: bind(given)), recording


def expected(given):
    return 2 * given["in0"] @ given["param:w"]


def test_one_recording_serves_callers_at_any_address():
    device, recording = Repeating(), None
    for _ in range(3):
        given = arguments()
        call, recording = replayed(device, given, recording)
        call.enqueue()
        assert torch.allclose(given["out0"], expected(given))
    # One run before the recording, nothing of which is left; then replays alone.
    assert device.events == ["keep", "finish", "record", "renew", "replay", "replay", "replay"]


def test_within_a_recording_of_somebody_else_the_steps_and_copies_are_enqueued():
    device, given = Repeating(), arguments()
    device.within = True
    replayed(device, given)[0].enqueue()
    assert torch.allclose(given["out0"], expected(given))
    assert device.events == []


def test_steps_one_by_one_work_on_the_callers_tensors():
    device, given = Repeating(), arguments()
    call, recording = replayed(device, given)
    recording.poison(0xFF)
    assert len(call.steps) == 2
    for step in call.steps:
        call.run_step(step)
    assert torch.allclose(given["out0"], expected(given))


def test_nothing_of_an_earlier_run_is_found():
    device, given = Repeating(), arguments()
    call, recording = replayed(device, given)
    call.enqueue()
    recording.poison(0xFF)
    for name in ("in0", "out0"):
        assert bool(recording.fixed[name].tensor.isnan().all())
    assert recording.broken() == []


def test_writes_beside_an_output_are_seen_once():
    fixed = Fixed(torch.empty_strided((4, 5), (1, 4)))
    assert fixed.tensor.stride() == (1, 4)
    assert fixed.tensor.data_ptr() % 64 == 0
    assert not fixed.broken()
    for offset in (-1, 20):
        beside = fixed.tensor.as_strided((1,), (1,), fixed.tensor.storage_offset() + offset)
        beside.view(torch.int32).add_(1)
        assert fixed.broken()
        assert not fixed.broken()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("operation not permitted when stream is capturing"),
        LaunchRefused("operation not permitted when stream is capturing", "launch_config"),
        LibraryError("index: operation not permitted when stream is capturing"),
    ],
)
def test_what_cannot_be_recorded_is_a_failure_that_names_the_first_error(error):
    call, _ = replayed(Repeating(refuses=error), arguments())
    with pytest.raises(LaunchFailed, match="not permitted when stream is capturing") as raised:
        call.enqueue()
    assert (raised.value.failure.stage, raised.value.failure.kind) == ("launch", "capture")
    assert "leave `graph` out of the plan" in raised.value.failure.message


def test_a_run_that_does_not_end_is_the_failure_that_it_is_without_a_graph():
    hang = Failure(stage="launch", kind="hang", message="no end after 10 s")
    device = Repeating(ends=hang)
    with pytest.raises(LaunchFailed) as raised:
        replayed(device, arguments())[0].enqueue()
    assert raised.value.failure == hang
    assert "record" not in device.events


def test_other_parameters_numbers_and_layouts_need_another_recording():
    given = arguments(in1=3)
    same = {**arguments(in1=3), "param:w": WEIGHT}
    assert key_of(given) == key_of(same)
    assert key_of(given) == key_of(dict(reversed(given.items())))
    others = [{"param:w": WEIGHT.clone()}, {"in1": 4}, {"in1": 3.0}, {"in0": torch.rand(3, 4).t()}]
    assert all(key_of(given) != key_of({**given, **other}) for other in others)


def test_the_slot_that_asked_for_a_recording_is_at_fault_where_there_is_one():
    failure = Failure(stage="launch", kind="capture", message="the steps cannot be recorded as a graph")
    verdict = VerifyReport(
        ok=False, verified_on="gpu:none", checks=0, error_ratio=None, max_abs_error=None, failure=failure
    )
    for slots, slot in (({"launch": "graph"}, "launch"), ({}, None)):
        found = verified(Outcome(candidate="c", problem_hash="p", status="ok", slots=slots), verdict, (), "screen")
        assert (found.status, found.failure.slot) == ("launch_error", slot)


def test_a_candidate_that_nobody_needs_gives_its_memory_back_at_once():
    """Where its steps hold on to it, that is when Python looks for circles: after many others like it."""
    plan = PLAN.model_copy(update={"buffers": {"t": Buffer(dtype="float32", shape=(4, 5), init="result")}})
    device = SimpleNamespace(driver=None, stream=None, torch_device=torch.device("cpu"))
    loaded = LoadedCuda(device, {}, plan, None)
    loaded.bind(arguments())
    held = [weakref.ref(one) for one in (loaded, loaded._recording.fixed["out0"]._memory)]
    assert all(one() is not None for one in held)
    gc.disable()
    try:
        del loaded
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()
