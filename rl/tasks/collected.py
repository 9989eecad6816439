"""Groups of replies from run folders, as the stages rft and offline train on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.rl.credit import Arm
from warpsmith.rl.export.once import distinct
from warpsmith.rl.export.rounds import Round, made_by_round, rounds
from warpsmith.rl.records import Decision, Trajectory
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import idle
from warpsmith.rl.train.task import Sample, Scored
from warpsmith.rl.trajectories.read import trajectories
from warpsmith.rl.trajectories.scrub import Scrubber


@dataclass
class Found:
    """What run folders hold, and what of it teaches nothing."""

    groups: list[list[Sample]] = field(default_factory=list)
    candidates: int = 0
    wordless: int = 0
    """Decisions by policies without a model."""
    idless: int = 0
    """Replies without token ids: of servers, or with a text that was scrubbed."""
    foreign: int = 0
    """Replies by other weights than those that are trained."""

    def why_empty(self) -> str:
        """What they lack."""
        if self.foreign:
            return (
                f"{self.foreign} replies there were written by other weights than model.path has: train the model that "
                "the rollout asked, or roll out anew with --policy local: and this model"
            )
        if self.idless:
            return (
                f"{self.idless} replies there have no token ids, which training needs: roll out with --policy "
                "local:PATH (docs/training.md)"
            )
        return (
            f"{self.candidates} candidates there, and no group of two replies to one question was judged in full: "
            "collect with `warpsmith rollout SUITE --policy local:PATH`"
        )


def collected(folders: Sequence[Path], settings: RewardSettings, *, model: str, arm: Arm = "shared") -> Found:
    """The groups of all runs in these folders: replies of one role to one prompt in one round, with the ranked reward
    that each earned. `model`: fingerprint of the weights that are trained; replies of others are left out."""
    scrubber = Scrubber.of_this_machine()
    read: list[Trajectory] = [one for folder in folders for one in trajectories(folder, scrubber)]
    found = Found(candidates=len(read))
    for group in rounds(distinct(read), settings, arm):
        if group.rewards.skipped is None:
            _add(found, group, model, arm)
    return found


def as_earned(group: Sequence[Scored]) -> list[float]:
    """The rule of advantages of collected groups: their rewards are ranks already."""
    return [one.reward or 0.0 for one in group]


def _add(found: Found, group: Round, model: str, arm: Arm) -> None:
    """The groups of one round: one for each role and prompt."""
    asked: dict[tuple[str, str], dict[tuple[str, int | None], Sample]] = {}
    for index, member in enumerate(group.members):
        if not group.rewards.counted[index]:
            continue
        for decision in made_by_round(member):
            if not _usable(found, decision, model):
                continue
            unchanged = idle(arm, float(group.rewards.rewards[index]))
            earned = group.credit.roles[index].get(decision.role, unchanged)
            key = (decision.role, str(decision.prompt_hash))
            # A reply that led to several candidates is one draw.
            own = (str(decision.completion), decision.seed)
            asked.setdefault(key, {}).setdefault(own, _sample(member, decision, model, earned))
    found.groups += [list(own.values()) for own in asked.values() if len(own) > 1]


def _usable(found: Found, decision: Decision, model: str) -> bool:
    """Whether the trained model can learn from it; counts why not."""
    if not decision.textual:
        found.wordless += 1
    elif decision.tokens is None:
        found.idless += 1
    elif (decision.policy_version or "").partition("@")[0] != model:
        found.foreign += 1
    else:
        return True
    return False


def _sample(member: Trajectory, decision: Decision, model: str, reward: float) -> Sample:
    assert decision.tokens is not None
    return Sample(
        task=f"{member.task}:{decision.role}", group=0, version=-1, decisions=decision.tokens.decisions(model),
        text=decision.completion or "", reward=reward, verified=member.verified, percentile=None, advantage=0.0,
    )  # fmt: skip
