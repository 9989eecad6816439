"""Recorded tables as tasks: one reply, or one of each role, sets all slots, and the table says what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpsmith.agents.recorded import TableSpace
from warpsmith.agents.resources import NO_REGION, PolicyResources
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure, Outcome, Quantiles, Status, content_hash
from warpsmith.kernels.slots import Values
from warpsmith.rl.credit import Arm
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import NOT_OF_ITS_FORM, RoleTask, TeamTask
from warpsmith.rl.tasks.questions import one_question, team_questions
from warpsmith.rl.tasks.scoring import scored
from warpsmith.rl.train.sampler import seed_of
from warpsmith.rl.train.task import Scored
from warpsmith.tools.tables.table import Entry, Table

_STATUS: dict[str, Status] = {
    "rules": "rejected", "compile": "compile_error", "emulate": "not_measured", "launch": "launch_error",
    "verify": "wrong", "time": "not_measured", "infrastructure": "infrastructure_error",
}  # fmt: skip
_QUANTILES_OF_HALF = 2.563103 / (2 * 1.959964 * 1.2533141)
"""Half of the distance between the 10 % and the 90 % quantile of a sample, over half of its median's 95 % interval."""


@dataclass(frozen=True)
class RecordedGround:
    """A table as who judges: what was recorded is the verdict, and nobody is asked twice."""

    table: Table
    rewards: RewardSettings
    _yardsticks: dict[int, tuple[float, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The table's."""
        return f"table:{self.table.name}"

    def outcomes(self, wanted: Sequence[Values | None]) -> list[Outcome]:
        """By what was recorded; a combination that was not is one that cannot run."""
        return [recorded_outcome(self.table, values) for values in wanted]

    def again(self, wanted: Sequence[Values]) -> None:
        """Nobody is asked twice."""

    def scored(self, outcome: Outcome, random: int) -> Scored:
        """Against so many recorded configurations."""
        if random not in self._yardsticks:
            self._yardsticks[random] = yardstick_of(self.table, random)
        return scored(outcome, self.rewards, self._yardsticks[random], base_us=self.table.optimum_us)


def table_task(table: Table, rewards: RewardSettings, random: int) -> RoleTask:
    """One agent chooses a configuration. Nothing of the table is told but its parameters and their values. `random`:
    recorded configurations that verified ones are held against; 0: none."""
    ground = RecordedGround(table, rewards)
    return RoleTask(ground, one_question(TableSpace(table), _resources()), random, label=ground.name)


def table_team(table: Table, rewards: RewardSettings, random: int, arm: Arm = "shared") -> TeamTask:
    """A first round of all roles that own parameters of a table. UserError where that is one role."""
    space = TableSpace(table)
    if len(space.groups) < 2:
        raise UserError(
            f"{table.name}: one role owns all parameters; give them roles in a mapping file (docs/tables.md), or write "
            'agents = "single"'
        )
    questions = team_questions(space, _resources())
    return TeamTask(RecordedGround(table, rewards), questions, random, arm)


def yardstick_of(table: Table, count: int) -> tuple[float, ...]:
    """Costs in us of `count` recorded configurations that did not fail, or of all where there are fewer: always the
    same ones of a table."""
    costs = sorted(entry.cost_us for entry in table.entries.values() if entry.cost_us is not None)
    rng = np.random.default_rng(seed_of("yardstick", table.name) % 2**63)
    chosen = rng.choice(len(costs), min(count, len(costs)), replace=False)
    return tuple(costs[int(at)] for at in chosen)


def recorded_outcome(table: Table, values: Values | None) -> Outcome:
    """What a table says of a configuration, as the judge would say it: the recorded times stand for a full verdict."""
    key = tuple(values[slot.name] for slot in table.slots) if values is not None else ()
    common: dict[str, Any] = {
        "candidate": content_hash([table.name, list(key)])[:16], "problem_hash": content_hash(table.name),
        "slots": values or {}, "family": table.name, "verified_on": f"table:{table.name}", "provenance": "own",
    }  # fmt: skip
    entry = table.entries.get(key)
    if entry is None:
        missing = NOT_OF_ITS_FORM if values is None else "no such configuration was recorded"
        return Outcome(status="rejected", failure=Failure(stage="rules", message=missing), **common)
    if entry.cost_us is None:
        failure = entry.failure or Failure(stage="launch", message="it failed when it was recorded")
        return Outcome(status=_STATUS[failure.stage], failure=failure, **common)
    return Outcome(status="ok", time_us=_times(entry, entry.cost_us), **common)


def _times(entry: Entry, cost: float) -> Quantiles:
    """Quantiles whose median has the recorded interval."""
    half = entry.margin * cost * _QUANTILES_OF_HALF
    return Quantiles(p10=max(cost - half, 0.0), p50=cost, p90=cost + half, n=1)


def _resources() -> PolicyResources:
    """The question names no device: a foreign table does not say where it was recorded."""
    return PolicyResources(_nobody, lambda kind, data: None, model_for("sm_90"), NO_REGION)


def _nobody(address: Any) -> Any:
    raise ValueError("a table's question is answered by the model that is trained")
