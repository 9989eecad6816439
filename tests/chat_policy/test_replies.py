"""Reply models and the values that are left: exactly what the search would take."""

import pytest
from pydantic import ValidationError

from warpsmith.agents.chat.legal import key_of, open_slots
from warpsmith.agents.chat.replies import reply_model
from warpsmith.agents.chat.whole import WholeReply, plan_text
from warpsmith.agents.llm.forms import wire_schema
from warpsmith.agents.space import Grid, RestrictedSpace
from warpsmith.agents.synthetic import SLOTS, FormulaSpace
from warpsmith.kernels.slots import Slot, Values

MODEL = reply_model(
    "memory", (("vector", (1, 2, 4)), ("hint", ("default", "streaming")), ("fast", (False, True))), ("body",)
)


def allowed(values: Values) -> bool:
    return int(values["block"]) * int(values["items"]) * int(values["vector"]) <= 1024


SPACE = FormulaSpace(SLOTS, {"block": 256}, allows=allowed, roles=True)


def test_the_schema_holds_exactly_the_legal_values() -> None:
    properties = wire_schema(MODEL)["properties"]
    assert properties["vector"]["enum"] == [1, 2, 4]
    assert properties["hint"]["enum"] == ["default", "streaming"]
    assert list(properties) == ["why", "vector", "hint", "fast", "body"]
    assert wire_schema(MODEL)["additionalProperties"] is False


def test_spellings_of_a_value_are_taken_and_others_refused() -> None:
    said = MODEL.model_validate(
        {"why": "a\n\nb", "vector": "4", "hint": "Streaming ", "fast": "true", "role": "memory"}
    )
    assert said.model_dump() == {"why": "a b", "vector": 4, "hint": "streaming", "fast": True, "body": ""}
    for wrong in ({"vector": 8}, {"vector": True}, {"hint": "evict"}, {"fast": 2}):
        with pytest.raises(ValidationError):
            MODEL.model_validate({"why": "", "vector": 1, "hint": "default", "fast": False} | wrong)
    with pytest.raises(ValidationError):
        MODEL.model_validate({"vector": 1, "hint": "default", "fast": False})


def test_values_that_cannot_run_with_the_others_are_left_out() -> None:
    base = SPACE.naive | {"block": 512}
    found = {one.slot.name: one.legal for role in SPACE.groups for one in open_slots(SPACE, (base,), role)}
    assert max(found["vector"]) * 512 <= 1024
    assert max(found["items"]) == 8, "with a smaller block, which is the same role's, it can run"
    both = {one.slot.name: one.legal for one in open_slots(SPACE, (base, SPACE.naive), "memory")}
    assert set(both["vector"]) > set(found["vector"])


def test_known_combinations_and_pins_close_slots() -> None:
    role, names = next((role, names) for role, names in SPACE.groups.items() if len(names) == 1)
    slot = next(slot for slot in SPACE.choice_slots if slot.name in names)
    grid = Grid(SPACE)
    known = {grid.point(SPACE.naive | {slot.name: value}) for value in slot.values[:-1]}
    (left,) = open_slots(SPACE, (SPACE.naive,), role, known)
    assert left.legal == slot.values[-1:]
    assert (
        open_slots(SPACE, (SPACE.naive,), role, known | {grid.point(SPACE.naive | {slot.name: slot.values[-1]})}) == ()
    )
    pinned = RestrictedSpace(SPACE, {slot.name: slot.values[0]}, {})
    assert open_slots(pinned, (pinned.naive,), role) == ()


def test_texts_tell_combinations_apart() -> None:
    code = Slot("body", "compute", "code", ("a;",), "a;", "statements")
    space = FormulaSpace(SLOTS, {}, code_slots=(code,))
    assert key_of(space, space.naive) == key_of(space, space.naive | {"body": "a;"})
    assert key_of(space, space.naive) != key_of(space, space.naive | {"body": "b;"})


def test_a_whole_reply_becomes_a_candidate_and_back() -> None:
    said = WholeReply.model_validate({
        "why": "w", "buffers": {"part": {"dtype": "float32", "shape": [4]}}, "source": "// text",
        "steps": [{"kernel": "k", "grid": [2], "block": 32, "args": ["in0", "out0", {"i32": 4}, "f32:0.5", "param:w"]}],
    })  # fmt: skip
    made = said.candidate("p")
    (step,) = made.plan.steps
    assert step.args == ("in0", "out0", {"i32": 4}, {"f32": 0.5}, "param:w")
    assert made.plan.buffers["part"].init == "poison"
    assert made.parent == "p"
    assert '"grid":[2,1,1]' in plan_text(made.plan)
    for wrong in (
        {"steps": []},
        {"source": " "},
        {"steps": [{"kernel": "k", "grid": [1], "block": [1], "args": ["i32:x"]}]},
    ):
        with pytest.raises(ValidationError):
            WholeReply.model_validate(said.model_dump() | wrong)
