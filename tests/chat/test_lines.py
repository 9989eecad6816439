"""Sessions without a terminal, line by line: descriptions, wishes in plain words, launch plans, and how they end."""

import asyncio
import io
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.problems import problem

from warpsmith.agents.llm.scripted.players import Incoming, Turn
from warpsmith.agents.llm.scripted.server import ScriptedServer
from warpsmith.app.chat.desk import Desk
from warpsmith.app.chat.launch_dialogue import edited
from warpsmith.app.chat.reader import PipeReader
from warpsmith.app.chat.screen import Screen
from warpsmith.app.chat.session import Mode
from warpsmith.app.chat.start import ChatSettings, hold_sessions, run_chat
from warpsmith.app.ending import Interrupted
from warpsmith.app.optimize import OptimizeSettings
from warpsmith.kernels.errors import UserError
from warpsmith.tools.sketch.plan import sketch_plan

MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn({rows}, 32)]


def get_init_inputs():
    return []
"""
WISHES = {
    "keep fp32 accumulation": [("pin", "precision", "exact"), ("note", "-", "keep fp32 accumulation")],
    "no more than 48 KB shared memory": [("limit", "shared_memory", "49152")],
    "blocks of 77 threads": [("pin", "block", "77")],
    "why is this slower?": [("explain", "-", "-")],
    "hello": [("nothing", "-", "-")],
}


class Helper:
    """Understands the texts of `WISHES`, and writes a module at the third attempt."""

    def __init__(self) -> None:
        self.modules = iter(["import os\n" + MODULE.format(rows=8), MODULE.format(rows=9), MODULE.format(rows=8)])

    def __call__(self, incoming: Incoming) -> Turn:
        if "module" in (incoming.schema or {}).get("properties", {}) or "module" in incoming.code:
            return Turn({"why": "the positive part, doubled"}, {"module": next(self.modules)})
        said = incoming.text.rpartition("THE PERSON SAYS:\n")[2].splitlines()[0]
        return Turn({"wishes": [{"do": do, "name": name, "value": value} for do, name, value in WISHES[said]]})


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(player=Helper()) as running:
        yield running


def session(folder: Path, *lines: str, mode: Mode = "ask", run: str | None = None, **settings: object) -> str:
    """What a session shows that is given these lines."""
    out = io.StringIO()
    screen = Screen(out)
    reader = PipeReader(io.StringIO("".join(f"{line}\n" for line in lines)), echo=screen.line)
    search = OptimizeSettings(device="cpu", out=folder / "runs", **{"problem": "", **settings})  # type: ignore[arg-type]
    assert asyncio.run(hold_sessions(ChatSettings(search, mode=mode, run=run), Desk(screen, False, reader))) == 0
    return out.getvalue()


def test_a_description_becomes_a_module_that_is_approved_and_wishes_are_shown_before_they_act(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_CACHE", str(tmp_path / "cache"))
    shown = session(
        tmp_path,
        "the positive part, doubled", "f32[8,32", "f32[8,32]", "", "y", "y",
        "/plan", "y", "keep fp32 accumulation", "y", "no more than 48 KB shared memory", "n",
        "no more than 48 KB shared memory", "yes", "blocks of 77 threads", "hello", "why is this slower?",
        "/history", "/cost", "/exit",
        policy=f"chat:scripted@{server.base_url}",
    )  # fmt: skip
    refused, _, rest = shown.partition("refused by the rules: line 1: import of os")
    assert refused != shown
    assert "get_inputs() makes float32[9, 32], not f32[8,32]" in rest
    assert "understood: /lock precision=exact; note for the roles: keep fp32 accumulation" in rest
    assert rest.count("understood: /limit shared_memory=49152") == 2
    assert rest.count("at most 49,152 bytes of shared memory a block") == 1
    assert "error: 'blocks of 77 threads' was not done: it was understood as /lock block=77, and" in rest
    assert "block=77: choose one of 128" in rest
    assert "understood: nothing to do" in rest
    assert "there is nothing to compare" in rest
    history = rest.partition("> /history")[2]
    assert [line.split(None, 1)[1] for line in history.splitlines()[2:6]] == [
        "plan", "lock precision=exact", "note: keep fp32 accumulation", "limit shared_memory=49152",
    ]  # fmt: skip
    assert "interpreter" in history
    (run,) = (tmp_path / "runs").glob("*-reference-*")
    assert json.loads((run / "manifest.json").read_text())["config"]["approval"]["sha256"] in rest
    roles = [json.loads(line)["call"]["role"] for line in (run / "replies.jsonl").read_text().splitlines()]
    assert len(roles) == len(server.requests), "what the description took is the run's as well"
    assert roles[0] == "writer"
    assert [line.split()[2] for line in history.splitlines() if line.split()[:1] == ["writer"]] == ["3"]


def test_caps_count_what_a_description_took(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_CACHE", str(tmp_path / "cache"))
    lines = ("the positive part, doubled", "f32[8,32]", "y", "y", "hello", "/exit")
    policy = f"chat:scripted@{server.base_url}"
    assert "--max-calls 3 is reached" in session(tmp_path, *lines, policy=policy, max_calls=3)
    assert len(server.requests) == 3
    # The same description costs nothing again, and what another session paid is no part of this one's cap.
    assert "--max-calls 3 is reached" not in session(tmp_path, *lines, policy=policy, max_calls=3)
    assert len(server.requests) == 4


def test_a_module_that_nobody_approved_is_never_opened(server: ScriptedServer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not settled"):
        session(tmp_path, "doubled", "f32[8,32]", "n", mode="yolo", policy=f"chat:scripted@{server.base_url}")
    assert not list((tmp_path / "runs").glob("*-reference-*"))


KERNEL = """extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * fmaxf(x[i], 0.0f);
}
"""


def test_the_launch_plan_of_a_bare_kernel_is_worked_out_and_it_is_judged_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "p.py").write_text(problem("torch.relu(x) * 2"))
    shown = session(
        tmp_path,
        "grid=none", "grid=4 block=64", "n=256", "y", "/plan",
        problem=str(tmp_path / "p.py"), start=str(tmp_path / "k.cu"), budget=4,
    )  # fmt: skip
    assert "grid=none: a whole number is needed" in shown
    (run,) = (tmp_path / "runs").glob("*-p-*")
    first = json.loads((run / "manifest.json").read_text())["config"]["start_candidate"]
    assert f"first: {first} (freeform)" in shown
    (step,) = json.loads((run / "blobs" / f"{first}.json").read_text())["plan"]["steps"]
    assert (step["grid"], step["block"], step["args"]) == ([4, 1, 1], [64, 1, 1], ["in0", "out0", {"i32": 256}])


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ("block", "NAME=VALUE"),
        ("block=0", "from 1"),
        ("grid=1,2,3,4", "one to three"),
        ("z=in0", "no parameter"),
        ("'", "cannot be read"),
        ("shared=x", "whole number"),
    ],
)
def test_settings_of_a_launch_that_cannot_be_read_are_named(answer: str, part: str) -> None:
    plan, _ = sketch_plan(KERNEL, ())
    with pytest.raises(UserError, match=part):
        edited(KERNEL, plan, None, answer)


class Interrupts:
    """Standard input that ends in a Ctrl-C."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def __iter__(self) -> Iterator[str]:
        yield from self.lines
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(60)

    def isatty(self) -> bool:
        return False


def test_an_interrupt_off_a_terminal_names_the_run_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.py").write_text(problem("torch.relu(x) * 2"))
    monkeypatch.setattr(sys, "stdin", Interrupts("/plan", "y"))
    search = OptimizeSettings(device="cpu", out=tmp_path / "runs", problem=str(tmp_path / "p.py"))
    with pytest.raises(Interrupted) as told:
        run_chat(ChatSettings(search))
    (run,) = (tmp_path / "runs").iterdir()
    assert f"kept in {run}; go on with `warpsmith chat -r {run}`" in str(told.value)
    assert f"continuing {run}" in session(tmp_path, "/history", run=str(run))


def test_a_session_in_which_nothing_was_done_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(problem("torch.relu(x) * 2"))
    shown = session(tmp_path, "/undo", "/lock block", "/tree all", "/exit now", problem=str(tmp_path / "p.py"))
    for wrong in ("nothing to take back", "whose value could", "/tree all: /tree takes nothing", "/exit now: /exit"):
        assert wrong in shown
    assert not list((tmp_path / "runs").iterdir())


def test_turns_are_taken_back_one_by_one_or_so_many(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(problem("torch.relu(x) * 2"))
    shown = session(
        tmp_path,
        "/lock vector=4", "/limit threads=3", "/limit threads=256", "/lock block=128",
        "/undo 4", "/undo 0", "/undo two", "/undo 2", "/history", "/undo", "/undo",
        problem=str(tmp_path / "p.py"),
    )  # fmt: skip
    assert "error: /limit threads=3: no combination of slots is left with that" in shown
    assert "only 3 turns can be taken back, not 4" in shown
    assert shown.count("give a number of turns from 1") == 2
    assert [line for line in shown.splitlines() if line.startswith("taken back")] == [
        "taken back: lock block=128", "taken back: limit threads=256", "taken back: lock vector=4",
    ]  # fmt: skip
    assert "branch main, 1 turn:" in shown
    assert "there is nothing to take back" in shown


def test_the_lines_may_end_anywhere(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(problem())
    for lines in ((), ("/plan", "y", "/lock vector=2")):
        session(tmp_path, *lines, problem=str(tmp_path / "p.py"))


def test_what_a_mode_does_not_ask_is_answered_when_it_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(problem("torch.relu(x) * 2"))
    where = {"problem": str(tmp_path / "p.py"), "budget": 2}
    shown = session(
        tmp_path, "/plan", "/mode auto", "/run", f"/export cu {tmp_path}/out", "n", "/mode ask", "/mode auto", "y",
        **where,
    )  # fmt: skip
    planned, _, rest = shown.partition("go by this plan? yes, by mode auto")
    assert "go by this plan? [y/n" in planned
    assert "go by this plan?" not in rest
    assert "2 of 2 evaluations used" in rest or "full verdicts" in rest
    assert "first answer" not in rest
    offered = rest.partition("write cu to")[0].rpartition("warpsmith>")[2]
    assert re.search(r"write \w+ to \S+/best\? \[y/n", offered), "what was asked before /export"
    assert re.search(r"nothing was written\n(.*\n)*?write \w+ to \S+/best\? \[y/n", rest), "and is asked again"


def test_a_problem_that_no_family_covers_is_the_writers(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(problem("torch.sort(x, dim=1)[0]"))
    policy = f"chat:{server.model}@{server.base_url}"
    shown = session(tmp_path, "/plan", "n", "/slots", "/tree", "/exit", problem=str(tmp_path / "p.py"), policy=policy)
    assert "no family covers this" in shown
    assert "Warpsmith's own" not in shown


def test_budgets_are_shown_and_changed_all_at_once_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(problem("torch.relu(x) * 2"))
    shown = session(
        tmp_path,
        "/budget", "/budget 16", "/budget 16 cost=1 tokens=1000 calls=5", "/budget 17 calls=many", "/budget many",
        "/budget 0", "/budget cost=nan", "/budget time=5", "/budget", "/exit",
        problem=str(tmp_path / "p.py"), budget=4,
    )  # fmt: skip
    assert "Warpsmith's own" not in shown
    assert [shown.count(f"0 of {budget} evaluations used") for budget in (4, 16, 17)] == [1, 3, 0]
    assert shown.count("models: cost at most 1.0, tokens at most 1,000, calls at most 5") == 2
    for wrong in ("calls=many", "/budget many", "/budget 0", "cost=nan", "/budget time=5"):
        assert f"{wrong}: give a number" in shown
