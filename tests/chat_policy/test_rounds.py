"""Rounds of the chat policy against a real server: merging, known combinations, failures, code, caps, resuming."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.played import Played, Says, played

from warpsmith.agents.chat.legal import key_of
from warpsmith.agents.complaint import Complaint
from warpsmith.agents.llm.accounts import Caps
from warpsmith.agents.llm.records import CapReached, Interrupted, ServerUnusable
from warpsmith.agents.llm.scripted.faults import Fault
from warpsmith.agents.llm.scripted.players import FirstLegal, Incoming, RandomLegal, Turn
from warpsmith.agents.plans import PlanOption, PlanQuestion
from warpsmith.agents.policy import Kind, Request, Trial
from warpsmith.agents.synthetic import SLOTS, FormulaSpace
from warpsmith.kernels.records import Diagnostic, Failure
from warpsmith.kernels.slots import Slot, Values


def allowed(values: Values) -> bool:
    return int(values["block"]) * int(values["items"]) * int(values["vector"]) <= 2048


BODY = Slot("body", "compute", "code", ("const float v0 = x0 * x0;",), "const float v0 = x0 * x0;", "from x0 to v0")
SPACE = FormulaSpace(SLOTS, {"block": 256}, allows=allowed, roles=True, code_slots=(BODY,))
FIRST = Trial(SPACE.naive, 10.0, candidate="first")


def request(
    kind: Kind, *, count: int = 1, role: str | None = None, history: tuple[Trial, ...] = (FIRST,), **more: object
) -> Request:
    return Request(SPACE, history, kind, count, 0, 3, role=role, **more)  # type: ignore[arg-type]


def test_a_joint_round_merges_what_all_roles_say(tmp_path: Path) -> None:
    says = Says(memory=[{"vector": 4}], config=[{"block": 128, "items": 2}], compute=[{"unroll": 4}])
    with played(says, tmp_path) as one:
        (made,) = one.policy.propose(request("joint"))
    assert [made.values[name] for name in ("vector", "block", "items", "unroll")] == [4, 128, 2, 4]
    assert made.base == "first"
    assert all(edit.why == "because" for edits in made.edits.values() for edit in edits)
    asked = {data["role"] for data in one.told("ask")}
    assert asked == set(SPACE.groups)
    assert all(data["prompt"].startswith(data["role"] + "@") for data in one.told("ask"))
    assert {data["role"] for data in one.told("reply")} == asked
    assert "body" not in str([r.body for r in one.server.requests])


def test_the_same_request_and_kept_replies_give_the_same_without_asking(tmp_path: Path) -> None:
    with played(RandomLegal(3), tmp_path) as one:
        first = one.policy.propose(request("joint", count=3))
        paid = len(one.server.requests)
        again = one.policy.propose(request("joint", count=3))
        assert len(one.server.requests) == paid > 0
        port = int(one.server.base_url.rsplit(":", 1)[1].split("/")[0])
    assert [made.edits for made in again] == [made.edits for made in first]
    half = len(one.told("reply")) // 2
    assert [data["replayed"] for data in one.told("reply")] == [False] * half + [True] * half
    with played(RandomLegal(4), tmp_path, port=port) as resumed:
        kept = resumed.policy.propose(request("joint", count=3))
        assert not resumed.server.requests
    assert [made.edits for made in kept] == [made.edits for made in first]


def test_what_is_known_is_told_and_then_filled(tmp_path: Path) -> None:
    stubborn = Says(memory=[{"vector": 4, "residency": "none"}])
    known = (Trial(SPACE.naive | {"vector": 4}, 9.0, candidate="v4"),)
    with played(stubborn, tmp_path) as one:
        proposals = one.policy.propose(request("refine", role="memory", history=(FIRST, *known)))
    assert len(proposals) == 1
    assert key_of(SPACE, proposals[0].values) not in {key_of(SPACE, t.values) for t in known}
    assert any("was tried already" in text for text in one.prompts("memory"))
    assert one.told("filled")[0]["by"] == "builtin"


def test_what_cannot_run_together_is_told_to_one_and_reconciled(tmp_path: Path) -> None:
    greedy = Says(memory=[{"vector": 4}], config=[{"block": 512, "items": 4}])
    with played(greedy, tmp_path) as one:
        (made,) = one.policy.propose(request("joint"))
    assert allowed(made.values)
    again = [text for role in SPACE.groups for text in one.prompts(role) if "cannot run" in text]
    assert len(again) == 1


def test_a_role_that_gives_no_reply_keeps_its_slots(tmp_path: Path) -> None:
    def mute_memory(incoming: Incoming) -> Turn:
        if "memory role" in incoming.text:
            return Turn({"vector": "seven"}, prose="I would rather not.")
        return Says(config=[{"block": 128}])(incoming)

    with played(mute_memory, tmp_path, dialect="ignores") as one:
        (made,) = one.policy.propose(request("joint"))
    assert made.values["vector"] == SPACE.naive["vector"]
    assert made.values["block"] == 128
    (failed,) = one.told("reply_failed")
    assert failed["role"] == "memory"
    assert failed["reason"]


def test_nobody_replies_and_the_builtin_policy_fills(tmp_path: Path) -> None:
    with played(lambda incoming: Turn(prose="No."), tmp_path, dialect="ignores") as one:
        proposals = one.policy.propose(request("joint", count=2))
    assert len(proposals) == 2
    assert one.told("filled")[0]["count"] == 2
    assert {data["role"] for data in one.told("reply_failed")} == set(SPACE.groups)


def test_a_cap_keeps_what_was_had(tmp_path: Path) -> None:
    roles = len(SPACE.groups)
    with (
        played(RandomLegal(1), tmp_path / "a", caps=Caps(max_calls=0)) as none,
        pytest.raises(CapReached, match="max-calls"),
    ):
        none.policy.propose(request("joint"))
    with played(RandomLegal(1), tmp_path / "b", caps=Caps(max_calls=roles)) as some:
        assert len(some.policy.propose(request("joint"))) == 1
        with pytest.raises(CapReached):
            some.policy.propose(
                request("joint", history=(FIRST, Trial(SPACE.naive | {"vector": 4}, 5.0, candidate="x")))
            )


def test_a_wrong_key_is_the_persons_to_mend(tmp_path: Path) -> None:
    with played(FirstLegal(), tmp_path) as one:
        one.server.key = "another"
        with pytest.raises(ServerUnusable, match="API_KEY"):
            one.policy.propose(request("joint"))


def test_code_is_offered_to_the_acting_role_and_refused_with_its_line(tmp_path: Path) -> None:
    bad, good = "const float v0 = x0;\nreturn;", "const float v0 = x0 * x0 * 1.0f;"
    with played(Says(compute=[{"body": bad}, {"body": good}]), tmp_path) as one:
        (made,) = one.policy.propose(request("refine", role="compute"))
    assert made.values["body"] == good
    first, second = one.prompts("compute")
    assert BODY.default in first
    assert "line 2" in second
    assert "code slot body" in second


def test_code_that_is_refused_twice_is_left_out(tmp_path: Path) -> None:
    with played(Says(compute=[{"body": "#include <x>", "unroll": 4}]), tmp_path) as one:
        (made,) = one.policy.propose(request("refine", role="compute"))
    assert made.values.get("body", BODY.default) == BODY.default
    assert "refused" in one.told("reply")[0]


def test_a_repair_asks_the_owner_with_slot_and_line(tmp_path: Path) -> None:
    broken = "const float v0 = x0 * y0;"
    failure = Failure(stage="compile", message="line 90: undefined", slot="body", kind="error")
    patient = Trial(SPACE.naive | {"body": broken}, None, failure=failure, candidate="sick", role="compute")
    said = Diagnostic(severity="error", line=1, message='identifier "y0" is undefined', slot="body")
    complaint = Complaint("compile", "error", "line 90: undefined", "body", 90, (said,))
    with played(Says(compute=[{"body": BODY.default + " "}, {"body": "const float v0 = x0 * (x0);"}]), tmp_path) as one:
        (made,) = one.policy.propose(request("repair", history=(FIRST, patient), patient=1, complaint=complaint))
    assert one.told("ask")[0]["role"] == "compute"
    assert made.base == "sick"
    assert 'slot body, line 1: identifier "y0" is undefined' in one.prompts("compute")[0]
    assert broken in one.prompts("compute")[0]
    assert made.values["body"] != broken


def test_the_wishes_of_a_person_reach_every_role(tmp_path: Path) -> None:
    with played(FirstLegal(), tmp_path) as one:
        one.policy.propose(request("joint", notes=("keep fp32 accumulation",)))
    assert all("keep fp32 accumulation" in one.prompts(role)[0] for role in SPACE.groups)


def test_models_take_turns_over_the_proposals(tmp_path: Path) -> None:
    with played(RandomLegal(5), tmp_path, crew="chat:scripted,scripted;memory=scripted") as one:
        one.policy.propose(request("joint", count=2))
    assert {data["model"] for data in one.told("reply")} == {"scripted"}


@pytest.mark.parametrize(
    "kind", ["limit@3,7", "server_error@2", "prose@4", "invalid_enum@1,5", "refusal@2", "dropped@3", "truncated@6"]
)
def test_a_fault_now_and_then_costs_no_proposal(kind: str, tmp_path: Path) -> None:
    with played(RandomLegal(2), tmp_path, faults=[Fault.parse(kind)]) as one:
        assert len(one.policy.propose(request("joint", count=2))) == 2


def test_the_planner_chooses_among_what_there_is(tmp_path: Path) -> None:
    options = (PlanOption("row", "one block a row", 3, 5.0), PlanOption("freeform", "no template", 0, None))
    question = PlanQuestion(options, "row", "estimated", 9, 20)
    with played(lambda incoming: Turn({"plan": "freeform", "why": "stuck"}), tmp_path) as one:
        assert one.policy.plan(question) == "freeform"
        assert one.policy.plan(PlanQuestion(options[:1], "row", "estimated", 9, 20)) is None
    assert "one block a row" in one.prompts("planner")[0]
    with played(lambda incoming: Turn(prose="Hm."), tmp_path, dialect="ignores") as mute:
        assert mute.policy.plan(question) is None
    assert isinstance(mute, Played)


def test_questions_can_be_broken_off(tmp_path: Path) -> None:
    faults = [Fault("slow", seconds=60.0)]
    with played(FirstLegal(), tmp_path, faults=faults) as one, ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(one.policy.propose, request("refine", role="memory"))
        while not one.server.requests:
            time.sleep(0.02)
        one.policy.interrupt()
        with pytest.raises(Interrupted):
            asked.result(timeout=30)
