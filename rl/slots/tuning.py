"""Settings of slot training, searched by Optuna on recorded tables: kept in SQLite, written to a file that training
reads."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from pydantic import ValidationError

from warpsmith.agents.slots.layout import View
from warpsmith.agents.slots.settings import LearnSettings, Noise
from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.kernels.records import Record, content_hash
from warpsmith.rl.credit import Arm
from warpsmith.rl.replay import curve, replay
from warpsmith.rl.slots.critic import CriticSettings
from warpsmith.rl.slots.training import Algorithm, TrainSettings, trainee
from warpsmith.tools.tables.table import Table

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import BaseTrial, FrozenTrial, Trial

FILE, STORAGE = "settings.json", "study.db"
STARTS = 16
"""Trials that are random before the sampler has a model."""
_ASKED = "asked"
"""Attribute of a study: what its values mean."""
_WHOLE = "whole"
"""Attribute of a trial that was not given up."""


class TunedSettings(Record):
    """What a search for settings found."""

    version: Literal[1] = 1
    algorithm: Algorithm
    arm: Arm
    view: View
    disturb: Noise
    learn: LearnSettings
    critic: CriticSettings
    made: dict[str, Any]
    """How: tables, seeds, evaluations, trials; `score` beside `score_of_defaults`, both on the seeds of the search."""

    def onto(self, settings: TrainSettings) -> TrainSettings:
        """A training with these settings; how long it trains stays its own."""
        return replace(
            settings, algorithm=self.algorithm, arm=self.arm, view=self.view, disturb=self.disturb, learn=self.learn,
            critic=self.critic,
        )  # fmt: skip


@dataclass(frozen=True)
class Question:
    """What settings are judged by: searches from nothing on these tables, with these seeds."""

    tables: Sequence[Table]
    algorithm: Algorithm
    seeds: tuple[int, ...]
    at: tuple[int, ...]
    """Evaluations after which the best is looked at, ascending; the last is the budget of a search."""

    @property
    def asked(self) -> dict[str, Any]:
        """What two searches for settings must share to be one."""
        tables = {table.name: content_hash([list(map(list, table.entries)), table.optimum_us]) for table in self.tables}
        return {"algorithm": self.algorithm, "tables": tables, "seeds": list(self.seeds), "at": list(self.at)}

    def scores(self, settings: TrainSettings) -> Iterator[float]:
        """For each seed and table, seeds outermost: the table's optimum over the best found, mean over `at`."""
        for seed in self.seeds:
            for table in self.tables:
                trials = replay(table, trainee(settings, ()), budget=self.at[-1], seed=seed)
                yield float(np.mean(curve(table, trials, self.at)))


def suggested(trial: BaseTrial, algorithm: Algorithm) -> TrainSettings:
    """The settings that are searched, and their ranges."""
    base = LearnSettings()
    step = replace(
        base.step, rate=trial.suggest_float("rate", 0.01, 0.6, log=True),
        pair_rate=trial.suggest_float("pair_rate", 0.003, 0.6, log=True),
        epochs=trial.suggest_int("epochs", 1, 8), clip_high=trial.suggest_float("clip_high", 0.1, 0.6),
        entropy=trial.suggest_float("entropy", 1e-4, 0.1, log=True),
    )  # fmt: skip
    learn = replace(
        base, group=trial.suggest_int("group", 2, 16), replay=trial.suggest_int("replay", 0, 64),
        noise=trial.suggest_float("noise", 0.0, 0.3), plateau_noise=trial.suggest_float("plateau_noise", 0.0, 0.9),
        step=step,
    )  # fmt: skip
    views: tuple[View, ...] = ("own", "all")
    settings = TrainSettings(algorithm, view=cast(View, trial.suggest_categorical("view", views)), learn=learn)
    if algorithm == "grpo":
        arms: tuple[Arm, ...] = ("shared", "counterfactual")
        return replace(settings, arm=cast(Arm, trial.suggest_categorical("arm", arms)))
    critic = CriticSettings(
        decay=trial.suggest_float("decay", 0.5, 1.0), discount=trial.suggest_float("discount", 0.7, 1.0),
        rate=trial.suggest_float("critic_rate", 0.01, 0.5, log=True),
    )  # fmt: skip
    return replace(settings, critic=critic)


def tune(
    question: Question,
    folder: Path,
    *,
    trials: int,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
    heard: Callable[[int, float], None] = lambda done, best: None,
) -> TunedSettings:
    """Searches until `trials` are done, those of earlier calls included, or `stop` says so, which is asked before each.
    The defaults are the first trial. A trial is given up as soon as Wilcoxon's test has it behind the best one, on the
    same tables and seeds. UserError where the folder holds a search for something else; EnvironmentError_ without
    Optuna."""
    optuna = _optuna()
    folder.mkdir(parents=True, exist_ok=True)
    with _quiet():
        storage = optuna.storages.RDBStorage(f"sqlite:///{folder / STORAGE}")
        study = optuna.create_study(
            storage=storage, study_name="slots", direction="maximize", load_if_exists=True,
            pruner=optuna.pruners.WilcoxonPruner(p_threshold=0.1, n_startup_steps=2 * len(question.tables)),
        )  # fmt: skip
        _begun(study, question, folder)
        while len(_finished(study)) < trials and not stop():
            # Its random numbers follow from the number of trials, so that a search that goes on is no other one.
            study.sampler = optuna.samplers.TPESampler(
                seed=seed + len(study.get_trials(deepcopy=False)), n_startup_trials=STARTS, multivariate=True
            )
            study.optimize(lambda trial: _value(trial, question), n_trials=1)
            heard(len(_finished(study)), max(map(_score, _whole(study))))
        return _result(study, question)


def read_settings(path: Path) -> TunedSettings:
    """From the file, or from the folder that holds it. UserError where it is none."""
    file = path / FILE if path.is_dir() else path
    try:
        return TunedSettings.model_validate_json(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; `python -m warpsmith.app.slots tune` writes one") from None
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not the settings that tuning wrote ({error}); tune again") from None


def _optuna() -> Any:
    if importlib.util.find_spec("optuna") is None:
        raise EnvironmentError_("tuning needs Optuna, which is not installed: pip install 'warpsmith[tpe]'")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns of what is new in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _begun(study: Study, question: Question, folder: Path) -> None:
    """Asks a new study for the defaults first; of one that is gone on with, what was cut off begins again."""
    import optuna

    before = study.user_attrs.get(_ASKED)
    if before is None:
        study.set_user_attr(_ASKED, question.asked)
        study.enqueue_trial(_defaults(question.algorithm))
    elif different := [name for name, value in question.asked.items() if before[name] != value]:
        raise UserError(
            f"{folder} holds a search for settings with other {different[0]}: {json.dumps(before[different[0]])}; name "
            "another folder with --to, or set it back"
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params or _defaults(question.algorithm))


def _defaults(algorithm: Algorithm) -> dict[str, Any]:
    settings = TrainSettings(algorithm)
    learn, step = settings.learn, settings.learn.step
    named = {name: getattr(step, name) for name in ("rate", "pair_rate", "epochs", "clip_high", "entropy")}
    named |= {name: getattr(learn, name) for name in ("group", "replay", "noise", "plateau_noise")}
    named["view"] = settings.view
    if algorithm == "grpo":
        return named | {"arm": settings.arm}
    critic = asdict(settings.critic)
    return named | {"decay": critic["decay"], "discount": critic["discount"], "critic_rate": critic["rate"]}


def _value(trial: Trial, question: Question) -> float:
    """The mean of the scores. Of a trial that is given up an estimate: what is left would be as the best trial's."""
    settings, found = suggested(trial, question.algorithm), list[float]()
    for place, score in enumerate(question.scores(settings)):
        found.append(score)
        trial.report(score, place)
        if (place + 1) % len(question.tables) == 0 and trial.should_prune():
            best = max(_whole(trial.study), key=_score)
            left = [score for place, score in sorted(best.intermediate_values.items()) if place >= len(found)]
            return float(np.mean([*found, *left]))
    trial.set_user_attr(_WHOLE, True)
    return float(np.mean(found))


def _finished(study: Study) -> list[FrozenTrial]:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _whole(study: Study) -> list[FrozenTrial]:
    """Trials that saw every table and seed, in order."""
    return [one for one in _finished(study) if one.user_attrs.get(_WHOLE)]


def _score(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _result(study: Study, question: Question) -> TunedSettings:
    from optuna.trial import FixedTrial

    whole = _whole(study)
    if not whole:
        raise UserError("no trial was finished: give more time")
    best = max(whole, key=_score)
    # Through the same ranges, so that what is written is what was tried.
    settings = suggested(FixedTrial(best.params), question.algorithm)
    made = question.asked | {
        "trials": len(_finished(study)), "whole_trials": len(whole), "score": best.value,
        "score_of_defaults": whole[0].value,
    }  # fmt: skip
    return TunedSettings(
        algorithm=settings.algorithm, arm=settings.arm, view=settings.view, disturb=settings.disturb,
        learn=settings.learn, critic=settings.critic, made=made,
    )  # fmt: skip
