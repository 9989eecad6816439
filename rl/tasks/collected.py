"""Groups of replies from run folders, as the stages rft and offline train on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.rl.credit import Arm
from warpsmith.rl.export.lacking import listed
from warpsmith.rl.export.once import distinct
from warpsmith.rl.export.rounds import LOST, SCREENED, WORDLESS, Round, left_out, made_by_round, of_skipped, rounds
from warpsmith.rl.records import Decision, Trajectory
from warpsmith.rl.rewards.group import NO_VERIFIED
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import idle
from warpsmith.rl.train.task import Sample, Scored
from warpsmith.rl.trajectories.read import trajectories
from warpsmith.rl.trajectories.scrub import Scrubber

SERVED = "replies without token ids (written by a server's model)"
SCRUBBED = "replies without token ids (their texts held a key, path or name of this machine)"
FOREIGN = "replies by other weights than model.path has"
SINGLE = "replies without a second reply to the same question in their round"
SAME_DRAW = "replies that led to several candidates and count once"
_ROLL_OUT = "roll out with --policy local:PATH (docs/training.md)"
_MORE = "roll out with a larger --budget"
_REMEDIES: Mapping[str, str] = {
    WORDLESS: _ROLL_OUT, SERVED: _ROLL_OUT,
    SCRUBBED: "roll out where no path, key or name of this machine stands in prompts and replies (docs/learning.md)",
    FOREIGN: "train the model that the rollout asked, or roll out anew with --policy local: and this model",
    SCREENED: "go on with `warpsmith rollout --resume`, which judges every candidate in full",
    LOST: "go on with `warpsmith rollout --resume`, or roll out anew",
    of_skipped(NO_VERIFIED): f"{_MORE} or on other problems, or pay for validity ([rewards] validity)",
}  # fmt: skip
"""What helps against a reason; against any other: `_MORE`."""


@dataclass
class Found:
    """What run folders hold, and what of it teaches nothing."""

    groups: list[list[Sample]] = field(default_factory=list)
    candidates: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Decisions that teach nothing, by why."""

    @property
    def decisions(self) -> int:
        """All of them."""
        return sum(map(len, self.groups)) + self.left_out.total()

    @property
    def flat(self) -> bool:
        """Whether everybody earned the same in each group: nothing can be told apart."""
        return all(len({one.reward for one in group}) == 1 for group in self.groups)

    def why_empty(self) -> str:
        """How many there were, why each was left out, and what to do."""
        if not self.candidates:
            return "no proposal was evaluated there: collect with `warpsmith rollout SUITE --policy local:PATH`"
        read = f"no group among {self.candidates} candidates and {self.decisions} decisions there"
        if not self.left_out:
            return f"{read}: collect with `warpsmith rollout SUITE --policy local:PATH`"
        return f"{read} ({listed(self.left_out)}): {_REMEDIES.get(self.left_out.most_common(1)[0][0], _MORE)}"

    def why_flat(self) -> str:
        """The same where there are groups, none of which teaches anything."""
        return (
            f"all replies of each of the {len(self.groups)} groups there earned the same, so that there is nothing to "
            f'learn from: {_MORE} or on other problems, or imitate the best with stage = "rft" and name = "sft" under '
            "[loss]"
        )


def collected(folders: Sequence[Path], settings: RewardSettings, *, model: str, arm: Arm = "shared") -> Found:
    """The groups of all runs in these folders: replies of one role to one prompt in one round, with the ranked reward
    that each earned. `model`: fingerprint of the weights that are trained; replies of others are left out."""
    scrubber = Scrubber.of_this_machine()
    read: list[Trajectory] = [one for folder in folders for one in trajectories(folder, scrubber)]
    found = Found(candidates=len(read))
    for group in rounds(distinct(read), settings, arm):
        _add(found, group, model, arm)
    return found


def as_earned(group: Sequence[Scored]) -> list[float]:
    """The rule of advantages of collected groups: their rewards are ranks already."""
    return [one.reward or 0.0 for one in group]


def _add(found: Found, group: Round, model: str, arm: Arm) -> None:
    """The groups of one round: one for each role and prompt."""
    asked: dict[tuple[str, str], dict[tuple[str, int | None], Sample]] = {}
    for index, member in enumerate(group.members):
        for decision in made_by_round(member):
            if (why := _unusable(group, index, decision, model)) is not None:
                found.left_out[why] += 1
                continue
            unchanged = idle(arm, float(group.rewards.rewards[index]))
            earned = group.credit.roles[index].get(decision.role, unchanged)
            own = asked.setdefault((decision.role, str(decision.prompt_hash)), {})
            # A reply that led to several candidates is one draw.
            draw = (str(decision.completion), decision.seed)
            found.left_out[SAME_DRAW] += draw in own
            own.setdefault(draw, _sample(member, decision, model, earned))
    found.groups += [list(own.values()) for own in asked.values() if len(own) > 1]
    found.left_out[SINGLE] += sum(len(own) == 1 for own in asked.values())
    found.left_out = +found.left_out


def _unusable(group: Round, index: int, decision: Decision, model: str) -> str | None:
    """Why the trained model cannot learn from a reply; None where it can."""
    if decision.textual and decision.tokens is None:
        return SCRUBBED if decision.scrubbed else SERVED
    if decision.textual and (decision.policy_version or "").partition("@")[0] != model:
        return FOREIGN
    return left_out(group, index, decision)


def _sample(member: Trajectory, decision: Decision, model: str, reward: float) -> Sample:
    assert decision.tokens is not None
    return Sample(
        task=f"{member.task}:{decision.role}", group=0, version=-1, decisions=decision.tokens.decisions(model),
        text=decision.completion or "", reward=reward, verified=member.verified, percentile=None, advantage=0.0,
    )  # fmt: skip
