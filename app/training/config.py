"""The TOML document of `warpsmith train`: the trainer's settings, and the tables `tasks`, `held_out` and `rewards`."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Record
from warpsmith.rl.rewards.settings import RewardSettings, settings_of
from warpsmith.rl.train.checkpoint import differences
from warpsmith.rl.train.settings import TrainSettings, train_settings

CONFIG = "config.json"
"""The document in a training's folder, with absolute paths."""


class TaskSection(Record):
    """What is asked, in `[tasks]` and `[held_out]`."""

    tables: tuple[str, ...] = ()
    """Recorded tables: files, or folders of some."""
    problems: tuple[str, ...] = ()
    """As `bench` takes them: folders, list files, problems, with constants of their own behind a comma
    (`FILE.py,NAME=LITERAL`). Judged in full on the device."""
    trajectories: tuple[str, ...] = ()
    """Folders with runs, as `rollout` makes them; of the stages rft and offline."""
    agents: Literal["roles", "single", "team"] = "roles"
    """Of problems a question for each role or one for an agent that sets all slots, of a table always that one; or a
    joint round of all roles, of both."""
    credit: Literal["shared", "counterfactual"] = "shared"
    """What a role of a team earns: what all earn, or what its own change is estimated to have brought."""
    code: bool = False
    """Of problems: roles that act alone write their code slots as well."""
    random: Annotated[int, Field(ge=0)] = 64
    """Verified random candidates of a task that replies are held against (`percentile`); 0: none."""
    device: Literal["auto", "gpu", "cpu"] = "auto"
    arch: str | None = None
    jobs: Annotated[int, Field(ge=1)] | None = None
    """Compilers and emulator workers."""


@dataclass(frozen=True)
class TrainConfig:
    """A whole document, checked."""

    train: TrainSettings
    tasks: TaskSection
    held_out: TaskSection | None
    rewards: RewardSettings
    document: dict[str, Any]
    """What stands for it in the training's folder."""


def read_config(path: Path, *, model: Path | None = None, steps: int | None = None) -> TrainConfig:
    """From a TOML file; paths in it are of its folder, or of the current one. `model` and `steps` stand for what it
    says. UserError names file, field and remedy."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; docs/training.md shows one, examples/train_smollm2.toml is one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); name a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is no TOML: {error}") from None
    config = config_of(_with_places(given, path.resolve().parent), str(path), model=model, steps=steps)
    _refuse_unused(config, str(path))
    return config


def kept_config(folder: Path, *, model: Path | None = None, steps: int | None = None) -> TrainConfig:
    """Of a training that is gone on with. UserError where the folder is none."""
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(
            f"--resume {folder}: no training (it lacks {CONFIG}); name a folder that `warpsmith train` made"
        )
    try:
        given = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}); begin a new training without --resume") from None
    return config_of(given, str(path), model=model, steps=steps)


_OF_GROUPS = ("group_size", "explore", "refill")
"""Of `[sampling]`: what an evaluation on held-out tasks does not read."""
OF_THE_CALL = ("jobs",)
"""Of `[tasks]` and `[held_out]`: what changes no result, and may be given anew."""


def refuse_other(config: TrainConfig, kept: TrainConfig, where: Path, folder: Path) -> None:
    """UserError where a training is to go on with other tasks or rewards; it names the first setting that differs."""
    for section in ("tasks", "held_out", "rewards"):
        old, new = _plain(getattr(kept, section)), _plain(getattr(config, section))
        for name, before, now in differences(old, new, section):
            if name.partition(".")[2] not in OF_THE_CALL or None in (old, new):
                raise UserError(
                    f"{where}: {name} is {json.dumps(now)}, {folder} was begun with {json.dumps(before)}: set it back, "
                    "or begin a new training without --resume"
                )


def _plain(section: TaskSection | RewardSettings | None) -> Any:
    if section is None or isinstance(section, TaskSection):
        return None if section is None else section.model_dump(mode="json")
    return asdict(section) | {"terms": [f"{term.role}.{term.name}" for term in section.terms]}


def config_of(given: dict[str, Any], where: str, *, model: Path | None = None, steps: int | None = None) -> TrainConfig:
    """From a parsed document."""
    if not isinstance(given, dict):
        raise UserError(f"{where} holds no document of a training; begin a new one without --resume")
    table = given.get("model", {})
    if model is not None and isinstance(table, dict):  # Anything else is told of below, by its name.
        given = given | {"model": table | {"path": str(model.resolve())}}
    if steps is not None:
        given = given | {"steps": steps}
    own = {name: given[name] for name in ("tasks", "held_out", "rewards") if name in given}
    for name, table in own.items():
        if not isinstance(table, dict):
            raise UserError(f"{where}: {name} is a table: write [{name}]")
    train = train_settings({name: value for name, value in given.items() if name not in own}, where)
    tasks = _section(own.get("tasks", {}), "tasks", where)
    held_out = _section(own["held_out"], "held_out", where) if "held_out" in own else None
    rewards = _rewards(own.get("rewards", {}), where)
    _check(train, tasks, held_out, where)
    return TrainConfig(train, tasks, held_out, rewards, given)


def _rewards(table: dict[str, Any], where: str) -> RewardSettings:
    try:
        return settings_of(table)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _section(table: dict[str, Any], name: str, where: str) -> TaskSection:
    try:
        return TaskSection.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (name, *first["loc"])))
        known = ", ".join(TaskSection.model_fields)
        remedy = f"; there are {known}" if first["type"] == "extra_forbidden" else ""
        if len(first["loc"]) > 1 and first["loc"][0] == "problems":
            remedy = '; write "PATH" or, with constants of its own, "PATH,NAME=LITERAL"'
        raise UserError(f"{where}: {place}: {first['msg']}{remedy}") from None


def _check(train: TrainSettings, tasks: TaskSection, held_out: TaskSection | None, where: str) -> None:
    """What does not go together."""
    if train.stage == "offline" and not tasks.trajectories:
        raise UserError(
            f'{where}: stage "offline" trains on what was collected: write trajectories = ["runs/..."] under [tasks]'
        )
    if train.stage == "online" and tasks.trajectories:
        raise UserError(f'{where}: tasks.trajectories: stage "online" asks live: write stage = "rft" or "offline"')
    if tasks.trajectories and (tasks.tables or tasks.problems):
        raise UserError(f"{where}: [tasks] names trajectories and live tasks: leave one of them out")
    if not (tasks.tables or tasks.problems or tasks.trajectories):
        raise UserError(f'{where}: nothing to train on: write tables = ["DIR"] or problems = ["FILE.py"] under [tasks]')
    for name, section in (("tasks", tasks), ("held_out", held_out)):
        if section is not None:
            _check_agents(section, f"{where}: {name}")
    if held_out is not None and held_out.trajectories:
        raise UserError(f"{where}: held_out.trajectories: held-out tasks are asked live; write tables or problems")
    if held_out is not None and not (held_out.tables or held_out.problems):
        raise UserError(f"{where}: [held_out] names no task: write tables or problems, or leave it out")


def _refuse_unused(config: TrainConfig, where: str) -> None:
    """UserError names the first setting that a document gives and that nothing would read. A training that goes on
    keeps its own: older ones were begun with such."""
    train, tasks = config.train, config.tasks
    unused: dict[str, str] = {}
    if tasks.trajectories:
        not_asked = "tasks.trajectories were asked and judged when they were collected"
        remedy = "leave it out" if config.held_out is None else "leave it out, or write it under [held_out]"
        given = [
            name for name in TaskSection.model_fields if name in tasks.model_fields_set - {"trajectories", "credit"}
        ]
        unused |= {f"tasks.{name}": f"{not_asked}: {remedy}" for name in given}
        sampling = _OF_GROUPS if config.held_out is not None else tuple(type(train.sampling).model_fields)
        for table, names in (("sampling", sampling), ("watch", ("rejudge",))):
            given = [name for name in names if name in getattr(train, table).model_fields_set and name != "tasks"]
            unused |= {f"{table}.{name}": f"{not_asked}: leave it out" for name in given}
    if "scale_rewards" in train.model_fields_set:
        unused["scale_rewards"] = "advantages are the ranked rewards of [rewards], which are not scaled: leave it out"
    if "winners" in train.model_fields_set and train.stage != "rft":
        unused["winners"] = 'stage "rft" alone imitates winners: leave it out, or write stage = "rft"'
    for name, why in unused.items():
        raise UserError(f"{where}: {name} would change nothing: {why}")


def _check_agents(section: TaskSection, where: str) -> None:
    """Who answers, and what that leaves."""
    if section.credit != "shared" and section.agents != "team" and not section.trajectories:
        raise UserError(f'{where}.credit: {section.credit} is of joint rounds: write agents = "team"')
    if section.code and (section.agents in ("single", "team") or not section.problems):
        raise UserError(f'{where}.code: roles write code alone, of problems: write agents = "roles" and problems')


def _with_places(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document with absolute paths, so that a training goes on from anywhere."""
    found = dict(given)
    if isinstance(found.get("model"), dict):
        model = dict(found["model"])
        for name in ("path", "adapter"):
            if isinstance(model.get(name), str):
                model[name] = _place(model[name], folder)
        found["model"] = model
    for section in ("tasks", "held_out"):
        if isinstance(found.get(section), dict):
            table = dict(found[section])
            for name in ("tables", "problems", "trajectories"):
                if isinstance(table.get(name), list):
                    table[name] = [_place(one, folder) if isinstance(one, str) else one for one in table[name]]
            found[section] = table
    return found


def _place(text: str, folder: Path) -> str:
    """Beside the document where it is there, else below the current folder. `FILE.py:CALLABLE` and
    `FILE,NAME=LITERAL` keep what stands behind the file."""
    end = (
        len(text)
        if (folder / Path(text).expanduser()).exists()
        else min((at for at in map(text.find, ":,") if at >= 0), default=len(text))
    )
    path = Path(text[:end]).expanduser()
    return str(folder / path if (folder / path).exists() else path.absolute()) + text[end:]
