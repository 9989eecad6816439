"""Candidates carried to other sizes: the same values and edits, sizes that stand in default texts replaced."""

import hidden_problems as problems
import pytest

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried, edited_slots, is_of
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import family_named, specs_for
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate

DEVICE = model_for("sm_90")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = {}

    def find(name, **sizes):
        key = (name, *sorted(sizes.items()))
        if key not in made:
            path = problems.write(tmp_path_factory.mktemp("carry"), problems.TEXTS[name])
            loaded = load_problem(str(path), overrides={one: str(size) for one, size in sizes.items()})
            made[key] = capture(loaded)
        return made[key]

    return find


@pytest.fixture(scope="module")
def region(graph):
    return lambda name, **sizes: plan(graph(name, **sizes)).region


def norm_spec(region):
    return spec_for(family_named("row"), region("norm"), DEVICE)


@pytest.fixture
def at_193(region, graph):
    def find(**edits):
        spec = norm_spec(region)
        return carried(spec, spec.emit(spec.naive | edits), graph("norm", rows=5, width=193))

    return find


def test_untouched_texts_become_those_of_the_other_region(at_193):
    there = at_193()
    assert isinstance(there, Candidate)
    assert there.values["finish0"] == "const float v0 = red0 / 193.0f;"
    assert "SIZE = 193" in there.source
    assert there.plan.steps[0].grid[0] == 5


@pytest.mark.parametrize(
    ("edit", "moved"),
    [
        ("const float v0 = red0 / 256.0f + 0.5f;", "const float v0 = red0 / 193.0f + 0.5f;"),
        ("const float v0 = red0 * (1.0f / 256);", "const float v0 = red0 * (1.0f / 193);"),
        ("const float v0 = red0 * 0.00390625f;", f"const float v0 = red0 * {1 / 193!r}f;"),
    ],
)
def test_edits_keep_their_form_with_the_other_size(at_193, edit, moved):
    there = at_193(finish0=edit)
    assert isinstance(there, Candidate)
    assert there.values["finish0"] == moved


def test_a_size_in_another_form_cannot_be_carried(at_193):
    assert "finish0" in at_193(finish0="const float v0 = __fdividef(red0, 16.0f) * 0.0625f;")


def test_a_size_that_no_default_text_holds_stays_as_it_is(at_193):
    edit = "const float v1 = position < 256 ? x0 - v0 : 0.0f;\nconst float v2 = v1 * v1;"
    there = at_193(body1=edit)
    assert isinstance(there, Candidate)
    assert there.values["body1"] == edit


def test_values_that_the_search_leaves_out_there_still_hold(region, graph):
    spec = spec_for(family_named("row"), region("norm", width=2048), DEVICE)
    small = region("norm", rows=5, width=193)
    listed = {slot.name: slot.values for slot in spec_for(spec.family, small, DEVICE).choice_slots}
    values = spec.naive | {"threads": 256}
    assert spec.check(values) is None
    assert 256 not in listed.get("threads", ())
    there = carried(spec, spec.emit(values), graph("norm", rows=5, width=193))
    assert isinstance(there, Candidate)
    assert "constexpr int THREADS = 256;" in there.source
    assert there.plan.steps[0].block[0] == 256


def test_regions_of_another_form_are_refused_with_a_reason(region, graph):
    spec = spec_for(family_named("row"), region("softmax"), DEVICE)
    made = spec.emit(spec.naive)
    assert carried(spec, made, graph("softmax", width=1)) == "it has no reduction"
    assert carried(spec, made, graph("loss")) == "its region has other code slots"


def test_only_what_the_values_say_is_of_a_template(region):
    for spec in specs_for(region("softmax"), DEVICE):
        made = spec.emit(spec.sensible())
        assert is_of(spec, made)
        assert edited_slots(spec, made) == []
        assert not is_of(spec, made.model_copy(update={"source": made.source + " "}))
        assert not is_of(spec, made.model_copy(update={"family": "freeform"}))
        edited = spec.emit(spec.sensible() | {"post": f"{spec.naive['post']}\n"})
        assert edited_slots(spec, edited) == ["post"]
