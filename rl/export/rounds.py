"""Groups: the proposals of one round on one base, their rewards, and what each role earns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpsmith.kernels.records import Outcome, content_hash
from warpsmith.rl.credit import GAMMA, Arm, Credit, credit, tree_returns
from warpsmith.rl.records import Decision, Trajectory
from warpsmith.rl.rewards.gates import Member, member_of
from warpsmith.rl.rewards.group import GroupRewards, group_rewards
from warpsmith.rl.rewards.settings import RewardSettings

WORDLESS = "decided without words (by a policy that asks no model)"
SCREENED = "passed the quick check alone"
LOST = "lost to the machine"
UNTIMED = "without a time or an estimate"
NOT_FASTER = "verified and not faster than what they were made from"
TIED = "as fast as each other, or not to be compared"
FAILED_BOTH = "failed, both of them"
MANY_ROLES = "made by several roles' changes"
OTHER_QUESTIONS = "answers to other questions, or the same answer"
ALONE = "the only one of their round"
_GATES = {"unjudged": SCREENED, "infrastructure_error": LOST, "no_cost": UNTIMED}


def of_skipped(why: str) -> str:
    """Of replies of a round in which nobody earned anything."""
    return f"of rounds with {why}"


def gate_words(gate: str) -> str:
    """Of candidates that may not be ranked, or count as incorrect."""
    return _GATES.get(gate, f"failed ({gate.replace('_', ' ')})")


@dataclass(frozen=True, slots=True)
class Round:
    """One group: drawn from one policy, for one problem, in one turn of one run, on one machine."""

    key: str
    members: tuple[Trajectory, ...]
    rewards: GroupRewards
    credit: Credit
    """Of roles that decided something, whether or not that changed a slot."""


def rounds(found: Sequence[Trajectory], settings: RewardSettings, arm: Arm = "shared") -> list[Round]:
    """The groups of all trajectories, in order. A round's base is its group's incumbent."""
    known = {(one.episode, one.candidate): one.outcome for one in found}
    groups: dict[str, list[Trajectory]] = {}
    for one in found:
        if one.decisions:
            groups.setdefault(group_key(one), []).append(one)
    return [_round(key, own, known, settings, arm) for key, own in groups.items()]


def group_key(one: Trajectory) -> str:
    """Names a group."""
    machine = one.outcome.verified_on or one.device
    return content_hash([one.episode, one.problem, machine, one.arch, one.kind, one.turn, one.base])[:16]


def turn_returns(found: Sequence[Round], gamma: float = GAMMA) -> dict[tuple[str, str], float]:
    """Episode and id of a trajectory -> its reward and, discounted, what followed from its candidate."""
    every = [(member, float(r)) for one in found for member, r in zip(one.members, one.rewards.rewards, strict=True)]
    place: dict[tuple[str, str], int] = {}
    for index, (member, _) in enumerate(every):
        place.setdefault((member.episode, member.candidate), index)
    bases: list[int | None] = []
    for index, (member, _) in enumerate(every):
        base = place.get((member.episode, member.base)) if member.base is not None else None
        # What was proposed anew later on is no ancestor of what came before.
        bases.append(base if base is not None and every[base][0].turn < member.turn and base != index else None)
    returns = tree_returns([reward for _, reward in every], bases, gamma)
    return {(member.episode, member.id): value for (member, _), value in zip(every, returns, strict=True)}


def made_by_round(one: Trajectory) -> list[Decision]:
    """The decisions in which the members of a group may differ. A plan was made before the round and is the same for
    all of them, but where families are compared at the start."""
    return [made for made in one.decisions if made.kind != "plan" or one.kind == "start"]


def left_out(group: Round, index: int, decision: Decision) -> str | None:
    """Why a reply of a member has no reward to learn from; None where it has."""
    if not decision.textual:
        return WORDLESS
    if not group.rewards.counted[index]:
        return gate_words(group.rewards.gates[index])
    return of_skipped(group.rewards.skipped) if group.rewards.skipped is not None else None


def standing(one: Trajectory, settings: RewardSettings) -> Member:
    """How a trajectory's outcome stands in a group."""
    return member_of(one.outcome, settings, full=one.level == "full")


def _round(
    key: str, own: Sequence[Trajectory], known: Mapping[tuple[str, str], Outcome], settings: RewardSettings, arm: Arm
) -> Round:
    members = [standing(one, settings) for one in own]
    base = known.get((own[0].episode, own[0].base)) if own[0].base is not None else None
    incumbent = member_of(base, settings) if base is not None else None
    rewards = group_rewards(members, settings, incumbent=incumbent)
    teams = [{one.role: dict(one.slots) for one in made_by_round(member)} for member in own]
    shared = credit(teams, rewards.rewards, rewards.counted, arm=arm, base=rewards.incumbent)
    return Round(key, tuple(own), rewards, shared)
