"""Settings are searched on recorded tables, gone on with, and read by training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from warpsmith.agents.recorded import TableSpace
from warpsmith.agents.slots.policy import SlotPolicy
from warpsmith.agents.slots.settings import LearnSettings
from warpsmith.agents.slots.specialist import read_specialists
from warpsmith.app.slots.__main__ import app
from warpsmith.kernels.errors import UserError
from warpsmith.rl.replay import curve, replay
from warpsmith.rl.slots.critic import CriticSettings, CriticWorth
from warpsmith.rl.slots.training import TrainSettings, trainee
from warpsmith.rl.slots.tuning import FILE, Question, TunedSettings, read_settings, tune
from warpsmith.tools.tables.folder import read_table

pytest.importorskip("optuna")
TABLES = Path(__file__).parents[2] / "benchmarks" / "data" / "tuning"
TABLE = read_table(TABLES / "pnpoly_RTX3090.csv.xz")
AT = (10, 20)


def question(**more: Any) -> Question:
    return Question(**({"tables": [TABLE], "algorithm": "ppo", "seeds": (7, 8), "at": AT} | more))


def score(settings: TrainSettings) -> float:
    """What a trial is worth, anew."""
    return float(
        np.mean([curve(TABLE, replay(TABLE, trainee(settings, ()), budget=20, seed=seed), AT) for seed in (7, 8)])
    )


def test_a_search_for_settings_goes_on_and_what_it_writes_is_what_it_tried(tmp_path: Path) -> None:
    told: list[int] = []
    asked = iter([False, False, True])
    first = tune(question(), tmp_path, trials=4, stop=lambda: next(asked), heard=lambda done, best: told.append(done))
    assert told == [1, 2]
    found = tune(question(), tmp_path, trials=4, heard=lambda done, best: told.append(done))
    assert told == [1, 2, 3, 4]
    assert found.made["trials"] == 4
    assert found.made["score"] >= first.made["score"] >= first.made["score_of_defaults"]
    assert found.made["score"] == pytest.approx(score(found.onto(TrainSettings())))
    assert found.made["score_of_defaults"] == pytest.approx(score(TrainSettings("ppo")))
    assert TunedSettings.model_validate_json(found.model_dump_json()) == found
    assert tune(question(), tmp_path, trials=4) == found
    with pytest.raises(UserError, match="other seeds"):
        tune(question(seeds=(9, 10)), tmp_path, trials=4)


@pytest.mark.slow
def test_a_trial_that_was_cut_off_begins_again(tmp_path: Path) -> None:
    whole = tune(question(), tmp_path / "whole", trials=3)

    class Cut(Exception):
        """As a kill would."""

    def cut(done: int, best: float) -> None:
        if done == 2:
            raise Cut

    with pytest.raises(Cut):
        tune(question(), tmp_path / "cut", trials=3, heard=cut)
    import optuna

    study = optuna.load_study(study_name="slots", storage=f"sqlite:///{tmp_path / 'cut' / 'study.db'}")
    study.enqueue_trial({"rate": 0.3})
    study.ask()
    assert study.get_trials()[-1].state == optuna.trial.TrialState.RUNNING
    found = tune(question(), tmp_path / "cut", trials=3)
    states = [one.state.name for one in study.get_trials()]
    assert states.count("COMPLETE") == 3
    assert states.count("FAIL") == 1
    assert found.made["score_of_defaults"] == whole.made["score_of_defaults"]


def test_training_reads_what_tuning_wrote_and_specialists_go_on_with_it(tmp_path: Path) -> None:
    words = ["tune", str(TABLES), "--table", "pnpoly_RTX3090", "--to", str(tmp_path / "tuned"), "--trials", "2"]
    words += ["--seeds", "1", "--at", "10,20", "--algorithm", "ppo"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "trial 2 of 2" in told.output
    file = tmp_path / "tuned" / FILE
    written = json.loads(file.read_text())
    written["learn"]["group"] = 5
    written["critic"]["decay"] = 0.5
    file.write_text(json.dumps(written))
    words = ["tables", str(TABLES), "--table", "pnpoly_RTX3090", "--to", str(tmp_path), "--searches", "1"]
    words += ["--budget", "12", "--settings", str(file), "--view", "own"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    (found,) = read_specialists(tmp_path)
    assert (found.made["algorithm"], found.view) == ("ppo", "own")
    assert found.learn is not None
    assert found.learn.group == 5
    space = TableSpace(TABLE)
    assert SlotPolicy((found,)).learnt(space, ()).settings.group == 5
    assert SlotPolicy((found,), settings=LearnSettings(group=3)).learnt(space, ()).settings.group == 3
    assert SlotPolicy(()).learnt(space, ()).settings == LearnSettings()
    worth = trainee(read_settings(file).onto(TrainSettings()), ()).worth()
    assert isinstance(worth, CriticWorth)
    assert worth.critic == CriticSettings(0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at", "20,10"], "ascending"),
        (["--algorithm", "sac"], "grpo, ppo"),
        (["--table", "none"], "has no such table"),
    ],
)
def test_what_cannot_be_tuned_says_what_to_write(tmp_path: Path, words: list[str], said: str) -> None:
    told = CliRunner().invoke(app, ["tune", str(TABLES), "--to", str(tmp_path), *words])
    assert isinstance(told.exception, UserError)
    assert said in str(told.exception)
    with pytest.raises(UserError, match="no such file"):
        read_settings(tmp_path)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(UserError, match="tune again"):
        read_settings(tmp_path)
