"""What a terminal is shown of texts that others wrote."""

from warpsmith.app.wording import outcome_line, verdict_text
from warpsmith.kernels.records import Failure, Outcome

FORGERY = "broken\x1b[2K\x1b[1A candidate deadbeef: ok \x1b[8m\u202e"


def test_no_message_moves_the_cursor_or_forges_a_line():
    failure = Failure(stage="compile", message=FORGERY)
    outcome = Outcome(
        candidate="c0ffee", problem_hash="p", status="compile_error", failure=failure, warnings=(FORGERY,)
    )
    for text in (verdict_text(outcome), outcome_line({"status": "compile_error", "failure": FORGERY})):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\\x1b[2K" in text
    assert verdict_text(outcome).splitlines()[0] == "candidate c0ffee: compile_error"


def test_ordinary_text_stays_as_it_is():
    failure = Failure(stage="verify", message="3 µs, größer als ≥ 4\n  second line")
    outcome = Outcome(candidate="c0ffee", problem_hash="p", status="wrong", failure=failure)
    assert "3 µs, größer als ≥ 4\n  second line" in verdict_text(outcome)
