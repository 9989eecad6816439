"""Edits of slots: who may make them, and the proof that they change nothing else."""

from __future__ import annotations

import jinja2
import pytest
import regions

from warpsmith.kernels.assemble import (
    apply_edits,
    assemble,
    choice_line,
    differences_elsewhere,
    render,
    slot_text,
    unchanged_elsewhere,
)
from warpsmith.kernels.families.column import ColumnFamily
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.records import KernelStep
from warpsmith.kernels.slot_text import refuse_code
from warpsmith.kernels.slots import Decision, Slot, SlotEdit


@pytest.fixture(scope="module")
def map_spec(spec_of):
    return spec_of(MapFamily(), regions.pointwise("gelu", regions.random(64, 96)).region)


@pytest.fixture(scope="module")
def column_spec(spec_of):
    return spec_of(ColumnFamily(), regions.softmax(regions.random(4, 64, 32), 1).region)


def edit(role, **values):
    return Decision(role, tuple(SlotEdit(name, value) for name, value in values.items()))


def test_owner_may_edit_and_others_are_refused(map_spec):
    done = apply_edits(map_spec, map_spec.naive, [edit("config", block=256, vector=4), edit("memory", vector=2)])
    assert done.values["block"] == 256
    assert done.values["vector"] == 2
    (refused,) = done.refused
    assert (refused.role, refused.slot, refused.value) == ("config", "vector", 4)
    assert "memory" in refused.reason


def test_own_role_map_replaces_owners(map_spec):
    owners = {slot.name: f"only_{slot.name}" for slot in map_spec.slots}
    done = apply_edits(map_spec, map_spec.naive, [edit("config", block=256)], owners=owners)
    assert done.values == map_spec.naive
    assert len(done.refused) == 1


@pytest.mark.parametrize(
    ("role", "values"),
    [
        ("config", {"block": 300}),
        ("config", {"blocks": 256}),
        ("compute", {"items": True}),
        ("compute", {"items": "2"}),
        ("compute", {"body": 3}),
        ("compute", {"body": "const float y = x; }"}),
    ],
)
def test_illegal_values_are_refused(map_spec, role, values):
    done = apply_edits(map_spec, map_spec.naive, [edit(role, **values)])
    assert done.values == map_spec.naive
    assert len(done.refused) == 1


@pytest.mark.parametrize(
    "text",
    [
        "const float y = x;",
        "const float t = x * 2.0f;\nfloat y = t;\nif (t < 0.0f) { y = 0.0f; }",
        "const float y = x;  // as it comes }",
        "/* nothing\nelse */ const float y = x;",
        "",
    ],
)
def test_statement_lists_are_accepted(text):
    assert refuse_code(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "const float y = x; }  {",
        "const float y = (x;",
        "#define float double\nconst float y = x;",
        "  # pragma unroll 1\nconst float y = x;",
        "const float y = x; /* open",
        "const float y = x; */",
        "const float y = x; \\\n",
        "return;",
        "goto done;",
        "}  __global__ void other() {",
        "//@slot body",
        "//% for a in b",
        "const float y = ${x};",
        "const float y = x",
        'const char* s = "open;\n',
        "const float y = x; // ??/\n",
    ],
)
def test_texts_that_leave_their_place_are_refused(text):
    assert refuse_code(text) is not None


@pytest.mark.parametrize("name", ["map_spec", "column_spec"])
def test_every_choice_edit_keeps_to_its_slot(name, request):
    spec = request.getfixturevalue(name)
    before = spec.emit(spec.naive)
    changed = 0
    for slot in spec.choice_slots:
        for value in slot.values:
            values = spec.naive | {slot.name: value}
            if spec.check(values) is None:
                after = spec.emit(values)
                assert differences_elsewhere(before, after, [slot.name]) == ()
                if value != slot.default:
                    assert not unchanged_elsewhere(before, after, [])
                    changed += 1
    assert changed > 8


def test_code_edit_keeps_to_its_slot(column_spec):
    before = column_spec.emit(column_spec.naive)
    values = column_spec.naive | {"load_transform_2": "const float d0 = x - top;\nconst float e0 = exp2f(d0);"}
    after = column_spec.emit(values)
    assert unchanged_elsewhere(before, after, ["load_transform_2"])
    assert differences_elsewhere(before, after, ["post"]) == (
        "text of slot load_transform_2",
        "value of slot load_transform_2",
    )
    assert "exp2f" in slot_text(after, "load_transform_2")


def _shifted(candidate, name):
    first, last = candidate.slot_lines[name]
    return candidate.model_copy(update={"slot_lines": candidate.slot_lines | {name: (first - 1, last)}})


def _replaced(candidate, old, new):
    assert old in candidate.source
    return candidate.model_copy(update={"source": candidate.source.replace(old, new, 1)})


def _with_step(candidate, **update):
    (step,) = candidate.plan.steps
    assert isinstance(step, KernelStep)
    plan = candidate.plan.model_copy(update={"steps": (step.model_copy(update=update),)})
    return candidate.model_copy(update={"plan": plan})


def test_tampering_with_fixed_text_is_caught(map_spec):
    before, after = map_spec.emit(map_spec.naive), map_spec.emit({"block": 256})
    assert unchanged_elsewhere(before, after, ["block"])
    tampered = _replaced(after, "base + TILE <= TOTAL", "base + TILE <  TOTAL")
    assert differences_elsewhere(before, tampered, ["block"]) == ("fixed text",)


def test_tampering_with_another_slot_is_caught(map_spec):
    before, after = map_spec.emit(map_spec.naive), map_spec.emit({"block": 256})
    tampered = _replaced(after, "constexpr int ITEMS = 1;", "constexpr int ITEMS = 2;")
    assert not unchanged_elsewhere(before, tampered, ["block"])
    consistent = tampered.model_copy(update={"values": after.values | {"items": 2}})
    assert differences_elsewhere(before, consistent, ["block"]) == (
        "text of slot items",
        "value of slot items",
    )


def test_widened_line_range_is_caught(map_spec):
    before, after = map_spec.emit(map_spec.naive), map_spec.emit({"body": "const float y = x;"})
    assert unchanged_elsewhere(before, after, ["body"])
    assert not unchanged_elsewhere(before, _shifted(after, "body"), ["body"])
    assert not unchanged_elsewhere(_shifted(before, "body"), _shifted(after, "body"), ["body"])


def test_code_that_escapes_its_place_is_caught(map_spec):
    before, after = map_spec.emit(map_spec.naive), map_spec.emit({"body": "const float y = x; } {"})
    assert not unchanged_elsewhere(before, after, ["body"])


def test_choice_line_that_carries_more_is_caught(map_spec):
    before = map_spec.emit(map_spec.naive)
    after = _replaced(before, "constexpr int BLOCK = 128;", "constexpr int BLOCK = 256; static float extra;")
    assert not unchanged_elsewhere(before, after, ["block"])


def test_launch_plan_is_held_to_the_edit(map_spec):
    before = map_spec.emit(map_spec.naive)
    code, choice = map_spec.emit({"body": "const float y = x;"}), map_spec.emit({"block": 256})
    assert differences_elsewhere(before, _with_step(code, grid=(1, 1, 1)), ["body"]) == ("launch plan",)
    assert unchanged_elsewhere(before, _with_step(choice, grid=(1, 1, 1)), ["block"])
    assert differences_elsewhere(before, _with_step(choice, args=("in0", "in0")), ["block"]) == ("launch plan",)


def test_slot_lines_point_at_the_text(column_spec):
    candidate = column_spec.emit(column_spec.naive)
    for slot in column_spec.slots:
        text = slot_text(candidate, slot.name)
        if slot.kind == "choice":
            assert text == text.strip()
            assert f" {slot.name.upper()} = " in text
        elif slot.default:
            assert [line.strip() for line in text.split("\n")] == str(slot.default).split("\n")
        else:
            assert text.strip().startswith("//")


def test_text_values_need_an_enum():
    slot = Slot("hint", "memory", "choice", ("default", "no-allocate"), "default", "")
    assert choice_line(slot, "no-allocate", "Hint") == "constexpr Hint HINT = hint_no_allocate;"
    with pytest.raises(ValueError, match="enum"):
        choice_line(slot, "default")


def test_templates_are_strict():
    slot = Slot("body", "compute", "code", ("int a;",), "int a;", "")
    with pytest.raises(jinja2.UndefinedError):
        render("${missing}", {})
    with pytest.raises(ValueError, match="no marker"):
        assemble("int b;", [slot], {})
    with pytest.raises(ValueError, match="repeated"):
        assemble("//@slot body\n//@slot body", [slot], {})
    with pytest.raises(ValueError, match="unknown"):
        assemble("//@slot other", [slot], {})
    assert assemble("{\n    //@slot body\n}", [slot], {}).slot_lines == {"body": (2, 2)}
