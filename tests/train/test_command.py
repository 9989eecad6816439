"""`warpsmith train` and `warpsmith rollout` through the command, with a model that takes no time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.command import forked
from support.problems import problem

from warpsmith.app.display import QuietDisplay, make_display
from warpsmith.app.suite.problems import find_problems
from warpsmith.app.training.command import TrainCommand, run_train
from warpsmith.app.training.config import kept_config, read_config
from warpsmith.app.training.progress import Progress
from warpsmith.kernels.errors import UserError

TABLE = "block_size_x,tile_size,use_shmem,status,time_ms\n" + "".join(
    f"{block},{tile},{shared},{'ok' if (block, shared) != (512, 1) else 'compile'},"
    f"{0.01 * (1 + 0.4 * abs(at - 1) + 0.3 * abs(tile.bit_length() - 3) + 0.5 * shared):.5f}\n"
    for at, block in enumerate((32, 64, 128, 256, 512))
    for tile in (1, 2, 4, 8)
    for shared in (0, 1)
)
"""Best at 64, 4, 0; shared memory fails with 512 threads."""


def warpsmith(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return forked(words, folder, os.environ | {"WARPSMITH_CACHE": str(folder / "cache")})


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What `--json` printed."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def written(tmp_path: Path, folder: Path) -> Any:
    """Writes a document of the tiny model; keywords are its tables and top-level settings, as TOML."""
    (tmp_path / "table.csv").write_text(TABLE)

    def write(**more: str) -> Path:
        parts = {
            "top": "steps = 10\nlearning_rate = 1e-2\nmax_grad_norm = 1.0\neval_every = 10\neval_samples = 32\n",
            "model": f'path = "{folder}"\ndevice = "cpu"\nlora = {{ rank = 8, alpha = 16.0 }}\n',
            "loss": "length = 4.0\n", "sampling": "group_size = 16\nexplore = 0.1\n",
            "tasks": 'tables = ["table.csv"]\n', "held_out": 'tables = ["table.csv"]\n',
        } | more  # fmt: skip
        path = tmp_path / "train.toml"
        path.write_text("".join(f"[{name}]\n{text}" if name != "top" else text for name, text in parts.items() if text))
        return path

    return write


def test_a_model_learns_a_recorded_table_through_the_command_and_goes_on(tmp_path: Path, written: Any) -> None:
    told = warpsmith(tmp_path, "train", written(), "--json")
    done = document(told)
    said = told.stderr.splitlines()
    assert [line.partition(":")[0] for line in said if line.startswith("update ")] == [
        f"update {step}/10" for step in range(1, 11)
    ]
    assert any(line.startswith("before the first update: eval/percentile ") for line in said)
    first, last = done["evaluations"]
    assert (first["step"], last["step"], done["step"], done["stop"]) == (0, 10, 10, "steps")
    assert last["eval/percentile"] >= first["eval/percentile"] + 0.2
    folder = tmp_path / done["training"]
    assert (tmp_path / done["policy"] / "adapter_config.json").is_file()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    # In this process, which has made the imports.
    assert run_train(TrainCommand(config=None, resume=folder, steps=11), QuietDisplay()) == 0
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 11
    assert (folder / "metrics.jsonl").read_text().splitlines()[: len(lines)] == lines
    other = warpsmith(tmp_path, "train", written(rewards="margin = 0.1\n"), "--resume", folder)
    assert other.returncode == 2
    assert f"rewards.margin is 0.1, {folder} was begun with 0.03: set it back" in other.stderr


class Heard(QuietDisplay):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def phase(self, text: str) -> None:
        self.lines.append(text)


def test_what_takes_long_is_told_after_ten_seconds_of_silence() -> None:
    now, heard = [0.0], Heard()
    progress = Progress(heard, 3, clock=lambda: now[0])
    for at in range(26):
        now[0] = float(at)
        progress.doing("evaluation", at)
        if at == 12:
            progress.update(1, {"verified": 0.5, "entropy": float("nan")})
    assert heard.lines == ["evaluation, for 10 s", "update 1/3: verified 0.500", "evaluation, for 22 s"]


def test_quiet_json_is_the_document_alone(capfd: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with make_display(json=True, jsonl=False, quiet=quiet) as display:
            display.phase("loading")
            display.note("a warning")
            display.result({"step": 1}, "one update")
        said = capfd.readouterr()
        assert json.loads(said.out) == {"step": 1}
        assert said.err == ("" if quiet else "loading ...\nnote: a warning\n")


@pytest.mark.parametrize("credit", ["shared", "counterfactual"])
def test_a_team_learns_a_recorded_table_in_joint_rounds(tmp_path: Path, written: Any, credit: str) -> None:
    team = f'tables = ["table.csv"]\nagents = "team"\ncredit = "{credit}"\n'
    path = written(tasks=team, held_out='tables = ["table.csv"]\nagents = "team"\n')
    assert run_train(TrainCommand(config=path, out=tmp_path / "runs"), QuietDisplay()) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first, last = [line["eval/percentile"] for line in found if "eval/percentile" in line]
    assert last >= first + 0.2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"top": "learning = 1\n"}, "learning_rate"),
        ({"model": 'path = "x"\npth = "x"\n'}, "there are path"),
        ({"tasks": 'tables = ["table.csv"]\ncredit = "counterfactual"\n'}, 'agents = "team"'),
        ({"tasks": 'tables = ["table.csv"]\ncode = true\n'}, "roles write code alone"),
        ({"tasks": 'tabels = ["table.csv"]\n'}, "tasks.tabels"),
        ({"tasks": ""}, "nothing to train on"),
        ({"tasks": 'tables = ["nowhere"]\n'}, "nowhere"),
        ({"rewards": "margn = 0.1\n"}, "margn"),
        ({"model": 'path = "nowhere"\n'}, "model.path"),
        ({"top": 'stage = "offline"\n'}, "trajectories"),
        ({"top": "steps = \n"}, "no TOML"),
    ],
)
def test_documents_that_cannot_be_used_say_what_to_write(
    tmp_path: Path, written: Any, more: dict[str, str], words: str
) -> None:
    done = warpsmith(tmp_path, "train", written(**more))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_settings_that_nothing_reads_are_refused(tmp_path: Path, written: Any) -> None:
    collected = {"top": 'stage = "offline"\n', "tasks": 'trajectories = ["x"]\n'}
    held_out = {**collected, "sampling": "temperature = 0.7\n"}
    read_config(written(**collected, sampling="tasks = 2\n"))
    read_config(written(**held_out))
    for more, words in (
        (
            {**collected, "tasks": collected["tasks"] + 'agents = "single"\n'},
            "tasks.agents .* or write it under .held_out",
        ),
        (
            {**collected, "tasks": collected["tasks"] + "random = 64\n", "held_out": ""},
            "tasks.random .*: leave it out$",
        ),
        ({**held_out, "held_out": ""}, "sampling.temperature would change nothing"),
        (collected, "sampling.group_size would change nothing"),
        ({**collected, "sampling": "", "watch": "rejudge = 0\n"}, "watch.rejudge would change nothing"),
        ({"top": "winners = 0.5\n"}, 'winners would .*stage = "rft"'),
        ({"top": "scale_rewards = false\n"}, "scale_rewards would change nothing"),
    ):
        with pytest.raises(UserError, match=words):
            read_config(written(**more))
    (tmp_path / "config.json").write_text(json.dumps(read_config(written(**held_out)).document | {"winners": 0.5}))
    assert kept_config(tmp_path).train.winners == 0.5, "a training that was begun with it goes on"


def test_what_contradicts_a_training_that_goes_on_is_told_and_nothing_is_removed(tmp_path: Path, written: Any) -> None:
    config = written(top="steps = 1\n", held_out="")
    assert run_train(TrainCommand(config=config, out=tmp_path / "runs"), QuietDisplay()) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    jobs = written(top="steps = 2\n", held_out="", tasks='tables = ["table.csv"]\njobs = 2\n')
    assert run_train(TrainCommand(config=jobs, resume=folder), QuietDisplay()) == 0
    for more, words in (
        ({"tasks": 'tables = ["table.csv"]\nrandom = 8\n', "held_out": ""}, r"tasks\.random is 8, .* begun with 64"),
        ({}, r"held_out is {.*}, .* begun with null"),
    ):
        with pytest.raises(UserError, match=words):
            run_train(TrainCommand(config=written(top="steps = 2\n", **more), resume=folder), QuietDisplay())
    with pytest.raises(UserError, match="leave --out out"):
        run_train(TrainCommand(config=None, resume=folder, out=tmp_path / "other"), QuietDisplay())
    (tmp_path / "table.csv").unlink()
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folder / "config.json", bare)
    with pytest.raises(UserError, match=r"table\.csv"):
        run_train(TrainCommand(config=None, resume=bare), QuietDisplay())
    assert (bare / "config.json").is_file(), "a folder that this call did not make stays"
    (bare / "config.json").write_text("[]")
    with pytest.raises(UserError, match="no document of a training"):
        run_train(TrainCommand(config=None, resume=bare, steps=3), QuietDisplay())
    named = written(model="").read_text()
    (tmp_path / "named.toml").write_text('model = "tiny"\n' + named)
    with pytest.raises(UserError, match="model"):
        run_train(TrainCommand(config=tmp_path / "named.toml", model=tmp_path), QuietDisplay())


def test_problems_of_a_document_may_have_constants_of_their_own(tmp_path: Path, written: Any) -> None:
    (tmp_path / "relu.py").write_text(problem())
    config = read_config(written(tasks='problems = ["relu.py", "relu.py,rows=8,cols=32"]\n'))
    found = find_problems(config.tasks.problems)
    assert [one.overrides for one in found] == [{}, {"rows": "8", "cols": "32"}]
    assert {one.path for one in found} == {str(tmp_path / "relu.py")}
    with pytest.raises(UserError, match='write "PATH" or, with constants of its own'):
        read_config(written(tasks='problems = [{ path = "relu.py", rows = 8 }]\n'))


def test_one_problem_is_judged_in_one_place(tmp_path: Path, written: Any) -> None:
    (tmp_path / "relu.py").write_text(problem())
    tasks = 'problems = ["relu.py"]\ndevice = "cpu"\nrandom = 0\njobs = 1\n'
    config = written(tasks=tasks, held_out=tasks + 'arch = "sm_80"\n')
    with pytest.raises(UserError, match="one judge serves both"):
        run_train(TrainCommand(config=config, out=tmp_path / "runs"), QuietDisplay())


@pytest.mark.e2e
@pytest.mark.slow
def test_a_rollout_is_judged_in_full_and_is_what_training_reads(tmp_path: Path, folder: Path, written: Any) -> None:
    (tmp_path / "relu.py").write_text(problem("torch.relu(x) * x.sum(1, keepdim=True)"))
    words = ("relu.py", "--policy", f"local:{folder}?device=cpu", "--budget", "9", "--device", "cpu", "--workers", "1")
    done = document(warpsmith(tmp_path, "rollout", *words, "--json"))
    suite = tmp_path / done["suite"]
    facts = done["trajectories"]
    assert (facts["candidates"], facts["screened"], done["evaluations"]) == (9, 0, 9)
    assert facts["with_tokens"] == facts["replies"] > 0
    assert facts["groups"].get("used")
    files = [suite / "suite.json", *suite.glob("runs/*/*/manifest.json")]
    assert [json.loads(file.read_text())["config"]["rollout"] for file in files] == [True, True]
    other = warpsmith(tmp_path, "bench", "--resume", suite)
    assert other.returncode == 2
    assert "warpsmith rollout --resume" in other.stderr
    for stage, loss in (("offline", "dr_grpo"), ("rft", "sft")):
        path = written(
            top=f'stage = "{stage}"\nsteps = 2\n', loss=f'name = "{loss}"\n', held_out="", sampling="",
            tasks=f'trajectories = ["{suite}"]\n',
        )  # fmt: skip
        run = warpsmith(tmp_path, "train", path, "--json")
        # Groups of a model of random weights may hold no difference to learn from; what is imitated always moves it.
        if stage == "offline" and run.returncode == 2:
            assert "groups there earned the same" in run.stderr
            continue
        trained = document(run)
        assert trained["step"] == 2
        lines = (tmp_path / trained["training"] / "metrics.jsonl").read_text().splitlines()
        norms = [line["grad_norm"] for line in map(json.loads, lines) if "grad_norm" in line]
        assert norms or stage == "offline", "a batch may hold a group that teaches nothing"
        assert all(norm > 0 for norm in norms), stage


@pytest.mark.e2e
@pytest.mark.slow
def test_a_problem_is_judged_live_and_a_training_that_goes_on_judges_nothing_twice(
    tmp_path: Path, written: Any
) -> None:
    (tmp_path / "relu.py").write_text(problem("torch.relu(x) * x.sum(1, keepdim=True)"))
    path = written(
        top="steps = 1\neval_every = 1\neval_samples = 2\n", sampling="group_size = 4\n",
        tasks='problems = ["relu.py"]\ndevice = "cpu"\njobs = 1\nrandom = 2\n',
    )  # fmt: skip
    done = document(warpsmith(tmp_path, "train", path, "--json"))
    assert 0 < done["figures"]["verified"] <= 1
    assert 0 <= done["figures"]["percentile/mean"] <= 1
    folder = tmp_path / done["training"]
    (results,) = folder.glob("judged/relu/*/results.jsonl")
    before = [json.loads(line) for line in results.read_text().splitlines()]
    assert "screened" not in {one["status"] for one in before}
    assert {one["verified_on"] for one in before if one["status"] == "ok"} == {"emulator:sm_90"}
    again = document(warpsmith(tmp_path, "train", path, "--resume", folder, "--steps", "2", "--json"))
    assert (again["step"], again["training"]) == (2, str(folder))
    after = [json.loads(line)["candidate"] for line in results.read_text().splitlines()]
    assert after[: len(before)] == [one["candidate"] for one in before]
    assert len(set(after)) == len(after)
