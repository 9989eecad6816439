"""Code slots as tasks: what a role writes is judged as in a search."""

from __future__ import annotations

import json
from pathlib import Path

from support.problems import problem

from warpsmith.agents.llm.forms import code_asked_in
from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.problems import find_problems
from warpsmith.app.training.config import TaskSection
from warpsmith.app.training.judges import Judges
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import RoleTask


def reply(task: RoleTask, **texts: str) -> str:
    """The base's values and these texts, as the grammar has them."""
    values = {"why": "", **{name: task.question.base[name] for name in task.question.slots}}
    blocks = (f"\n```cuda {name}\n{texts.get(name, '')}\n```" for name in task.code)
    return json.dumps(values) + "".join(blocks)


def test_a_role_writes_its_code_slots_and_is_judged_by_what_they_compute(tmp_path: Path) -> None:
    (tmp_path / "doubled.py").write_text(problem("torch.tanh(x) * 2.0"))
    (found,) = find_problems((str(tmp_path / "doubled.py"),))
    section = TaskSection(problems=("doubled.py",), device="cpu", random=0, code=True)
    with Judges(tmp_path, RewardSettings(), 0, QuietDisplay()) as judges:
        tasks = [one for one in judges.tasks(found, section) if isinstance(one, RoleTask)]
        (task,) = [one for one in tasks if one.code]
        (slot,) = task.question.code
        text = str(task.question.base.get(slot.name, slot.default))
        assert code_asked_in(task.messages[1].content) == task.code
        assert text in task.messages[1].content
        same, longer, wrong, broken, refused = task.score([
            reply(task),
            reply(task, **{slot.name: f"{text}\nconst float more = 1.0f;"}),
            reply(task, **{slot.name: text.replace("2.0f", "3.0f")}),
            reply(task, **{slot.name: "const float nothing = never;"}),
            reply(task, **{slot.name: "#define x0 1"}),
        ])  # fmt: skip
    assert (same.reward, longer.verified) == (0.0, True)
    assert longer.outcome.outcome.slots[slot.name].endswith("more = 1.0f;")
    statuses = [one.outcome.outcome.status for one in (wrong, broken, refused)]
    assert statuses == ["wrong", "compile_error", "rejected"]
    assert not any(one.verified for one in (wrong, broken, refused))
