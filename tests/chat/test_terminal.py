"""Whole sessions through a pseudo-terminal: what is typed, what is seen, what is left on the disk."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from support.terminal import Terminal

CTRL_C, CTRL_D, ESC, UP, SHIFT_TAB = "\x03", "\x04", "\x1b", "\x1b[A", "\x1b[Z"
ID = r"[0-9a-f]{16}"
WRONG = {
    "/frobnicate": "no command /frobnicate",
    "/pln": "did you mean /plan?",
    "/": "no command /",
    "//": "no command //",
    "/run zero": "number of rounds",
    "/run -1": "number of rounds",
    "/run 99999999999999": "number of rounds",
    "/run ٣": "number of rounds",
    "/why zzz": "no candidate",
    "/diff a b c": "at most two",
    "/diff": "/run evaluates some",
    "/checkout": "/tree lists",
    "/checkout nope": "no candidate",
    "/lock": "/slots lists",
    "/lock nope=3": "no slot is called",
    "/lock vector=77": "choose one of",
    "/lock vector": "nothing was evaluated",
    "/unlock vector": "is not held",
    "/limit shared": "kinds are",
    "/limit shared=lots": "is no amount",
    "/limit nope=3": "no limit called",
    "/limit threads=1": "no combination",
    "/mode loud": "no mode",
    "/model chat:": "a model is missing",
    "/model nope": "unknown policy",
    "/model chat:m@http://me:sesame@127.0.0.1:1": "carries a password",
    "/budget -3": "number of evaluations",
    "/budget cost=x": "give a number",
    "/branch a b": "a branch's name",
    "/undo": "nothing to take back",
    "/export pdf": "forms are",
    "/export": "no candidate has passed",
    "/bench": "/run evaluates some",
    "/resume nowhere": "no session called",
    "/help nope": "no command",
    "héllo ✨ 你好": "free text needs",
    "\x1b[200~/run zero\nand more\x1b[201~": "number of rounds",
}
"""Lines at a prompt before anything was done -> what is said of them."""


def at_prompt(terminal: Terminal, line: str, *seen: str) -> str:
    """Types a line at the prompt, waits for all texts, in order, and the next prompt; returns what was seen."""
    terminal.enter(line)
    return "".join(terminal.sees(text) for text in seen) + terminal.ready()


def proposals(shown: str) -> set[str]:
    """Ids of the candidates that a round proposes."""
    return set(re.findall(rf"^  ({ID})  \w+  \w", shown.partition("proposes:")[2], re.MULTILINE))


def answers_wrong_lines_and_keys(seen: Terminal) -> None:
    """Nothing that is typed ends the session or shows a traceback."""
    for line, answer in WRONG.items():
        at_prompt(seen, line, answer)
    for keys in ("", "   ", ESC, "\x07\x0c", "\x1bOP", "\t\t\x15", "abc\x17\x15", "\x00"):
        seen.enter(keys + "\x15")
        seen.ready()
    seen.resize(5, 20)
    seen.resize(50, 200)
    at_prompt(seen, "x" * 3000, "free text needs")
    at_prompt(seen, CTRL_C, "/exit leaves")


def breaks_off(seen: Terminal) -> str:
    """Approves a round; Ctrl-C twice while the judge starts, once while it works: what is typed meanwhile is not lost.
    Returns what the judge told."""
    seen.enter("y")
    seen.sees("starting the judge")
    seen.keys(CTRL_C)
    seen.sees("stopping after this step")
    seen.keys(CTRL_C)
    seen.sees("stopped at once")
    seen.ready()
    seen.sees("interrupted; go on?")
    seen.enter("y")
    seen.sees("starting the judge")
    seen.keys("/his" + CTRL_C)
    seen.sees("stopping after this step")
    judged = seen.ready()
    seen.sees("/his")
    at_prompt(seen, "\x15n", "stopped here")
    return judged


def test_a_session_from_plan_to_export(chat: Callable[..., Terminal], desk: Path) -> None:
    with chat("p.py", "--device", "cpu", "--budget", "20", "--out", "runs", "--jobs", "2", started=True) as seen:
        seen.ready()
        answers_wrong_lines_and_keys(seen)
        planned = at_prompt(seen, "/plan", "one map region", "opening")
        assert "estimated" in planned
        seen.sees("go by this plan?")
        at_prompt(seen, "y", "the plan is approved")
        assert len(proposals(at_prompt(seen, "/run 1", "proposes:"))) == 4
        seen.sees("evaluate 4 candidates?")
        judged = breaks_off(seen)
        assert (
            len(re.findall(rf"{ID}  map  compile [\d.]+ s ok · quick check [\d.]+ s ok · [\d.]+ µs estimated", judged))
            == 4
        )
        assert re.search(r"\d+\.\d+x", judged) is None
        at_prompt(seen, "/lock vector=4", "vector is held at 4")
        at_prompt(seen, "/lock vector=4", "vector is held at 4")  # holds already: no turn of its own
        at_prompt(seen, "/limit threads=256", "at most 256 threads a block")
        first = proposals(at_prompt(seen, "/run", "proposes:"))
        at_prompt(seen, "not these: I want larger blocks", "refused; the reason is kept")
        second = proposals(at_prompt(seen, "/run", "proposes:"))
        assert first
        assert second
        assert first.isdisjoint(second)
        at_prompt(seen, "y", "evaluations used")
        at_prompt(seen, "/undo", "taken back: round")
        at_prompt(seen, "/undo", "taken back: round")
        at_prompt(seen, "/undo", "taken back: limit threads=256")
        at_prompt(seen, "/why", "against", "by the cost model's estimates", "emulated:")
        at_prompt(seen, "/bench", "verified on emulator:sm_90")
        at_prompt(seen, "y", "written:")
        at_prompt(seen, "/tree", "estimated *")
        at_prompt(seen, "/diff", "->")
        at_prompt(seen, "/slots", "pinned: vector=4")
        at_prompt(seen, SHIFT_TAB + "/cost", "mode auto", "models: none was asked", "on the emulator")
        seen.enter("/exit")
        assert seen.ends() == 0
    assert "Traceback" not in seen.text
    assert "Warpsmith's own" not in seen.text
    (run,) = (desk / "runs").glob("*-p-*")
    assert json.loads((run / "manifest.json").read_text())["config"]["jobs"] == 2
    typed = (run / "chat_history").read_text()
    assert "+/run zero" in typed
    assert "sesame" not in typed
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    counted = Counter((line["candidate"], line["status"]) for line in results)
    assert set(counted.values()) == {1}

    with chat("-c", "--out", "runs") as seen:
        assert "pinned: vector=4" in seen.ready()
        at_prompt(seen, "/history", "lock vector=4")
        at_prompt(seen, "typed and not sent" + CTRL_C, "press Up")
        seen.keys(UP)
        seen.sees("typed and not sent")
        seen.keys(CTRL_C)
        seen.ready()
        at_prompt(seen, "/export cu out")
        seen.sees("write cu to out?")
        at_prompt(seen, "y", "launch.json")
        seen.keys(CTRL_D)
        assert seen.ends() == 0
    assert "Traceback" not in seen.text
    plan = json.loads((desk / "out" / "launch.json").read_text())
    assert plan["steps"]
    assert (run / "best" / "model_new.py").exists()
    again = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert again == results


def test_sigterm_ends_a_session_at_a_prompt_at_a_question_and_at_work(
    chat: Callable[..., Terminal], tmp_path: Path
) -> None:
    for place in ("prompt", "question", "work"):
        mode = "auto" if place == "work" else "ask"
        with chat("p.py", "--device", "cpu", "--budget", "4000", "--approve", mode, "--out", str(tmp_path)) as seen:
            seen.ready()
            if place == "prompt":
                seen.keys("\x1b[31mred\x1b[0m text\x15")  # pasted colours
                seen.enter("/cost")
                seen.sees("models: none was asked")
            elif place == "question":
                seen.enter("/plan")
                seen.sees("go by this plan?")
            else:
                seen.enter("/run 400")
                seen.sees("quick check")
            os.kill(seen.pid, signal.SIGTERM)
            assert seen.ends() == 143
        assert "ended by SIGTERM" in seen.text
        assert "Traceback" not in seen.text


def test_a_used_up_budget_asks_before_more_is_spent(chat: Callable[..., Terminal], tmp_path: Path) -> None:
    with chat("p.py", "--device", "cpu", "--budget", "2", "--approve", "auto", "--out", str(tmp_path)) as seen:
        seen.ready()
        seen.enter("/run 1")
        seen.sees("used up: go on with 2 more, or how many?")
        seen.enter("3")
        seen.sees("3 evaluations left")
        seen.sees("used up: go on with 5 more, or how many?")
        seen.enter("n")
        seen.sees("verified on emulator:sm_90")
        seen.sees("write")
        at_prompt(seen, "n", "left as it was")
        at_prompt(seen, "/budget", "5 of 5 evaluations used")
        seen.enter("/exit")
        assert seen.ends() == 0
    assert "Traceback" not in seen.text
    (run,) = tmp_path.glob("*-p-*")
    quick = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert len({line["candidate"] for line in quick}) == 5
    assert not (run / "best").exists()
