"""Rows for trainers. Columns have the names of TRL's datasets: prompt, completion, chosen, rejected (huggingface.co/
docs/trl/dataset_formats); texts are lists of messages, which it calls conversational."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from warpsmith.kernels.records import content_hash
from warpsmith.rl.credit import Arm
from warpsmith.rl.export.once import distinct, once
from warpsmith.rl.export.rounds import (
    FAILED_BOTH,
    MANY_ROLES,
    NOT_FASTER,
    OTHER_QUESTIONS,
    TIED,
    WORDLESS,
    Round,
    gate_words,
    left_out,
    made_by_round,
    rounds,
    standing,
    turn_returns,
)
from warpsmith.rl.records import Decision, Trajectory
from warpsmith.rl.rewards.pool import shared_basis
from warpsmith.rl.rewards.rank import wins
from warpsmith.rl.rewards.settings import RewardSettings

Form = Literal["trajectories", "sft", "preference", "grpo"]
FORMS: tuple[Form, ...] = ("trajectories", "sft", "preference", "grpo")
Row = dict[str, Any]

_FREE = ("values", "owners", "outcome", "samples_us", "reward_parts", "versions")
"""Fields of a trajectory whose keys differ from row to row: JSON texts, so that a column has one type."""


def rows(form: Form, found: Sequence[Trajectory], settings: RewardSettings, arm: Arm = "shared") -> list[Row]:
    """The rows of a form, each content once; of `grpo` once in each run, whose draws they are."""
    if form == "trajectories":
        return [flat(one) for one in once(found)]
    own = distinct(found)
    makers = {"sft": sft_rows, "preference": preference_rows}
    made = grpo_rows(own, settings, arm) if form == "grpo" else makers[form](own, settings)
    unique: dict[str, Row] = {}
    for row in made:
        unique.setdefault(row["id"], row)
    return list(unique.values())


def flat(one: Trajectory) -> Row:
    """A trajectory as a row; `Trajectory` reads it again."""
    row: Row = one.model_dump(mode="json")
    for name in _FREE:
        row[name] = json.dumps(row[name], sort_keys=True)
    for decision in row["decisions"]:
        decision["slots"] = json.dumps(decision["slots"], sort_keys=True)
        for held in (decision, decision["tokens"]):
            if held is not None and held["seed"] is not None:
                # Seeds of models have 64 bits without a sign, columns have one.
                held["seed"] = str(held["seed"])
    return row


def sft_rows(found: Sequence[Trajectory], settings: RewardSettings) -> Iterable[Row]:
    """The decisions behind winners: candidates that are verified and beat what they were made from, or mended it."""
    for one, why in _taught(found, settings):
        for decision in one.decisions if why is None else ():
            if decision.textual:
                texts = {"prompt": _asked(decision), "completion": _said(decision)}
                yield _row(texts, one, decision) | {"candidate": one.candidate}


def not_taught(found: Sequence[Trajectory], settings: RewardSettings) -> Counter[str]:
    """Why candidates make no row of `sft`."""
    return Counter(why for _, why in _taught(found, settings) if why is not None)


def _taught(found: Sequence[Trajectory], settings: RewardSettings) -> Iterable[tuple[Trajectory, str | None]]:
    """Each candidate, and why nobody is taught what led to it; None where that is taught."""
    by_candidate = {(one.episode, one.candidate): one for one in found}
    for one in found:
        base = by_candidate.get((one.episode, one.base)) if one.base is not None else None
        member = standing(one, settings)
        why = None
        if not any(decision.textual for decision in one.decisions):
            why = WORDLESS
        elif member.standing != "verified":
            why = gate_words(member.gate)
        elif base is not None and _beats(one, base, settings) <= 0:
            why = NOT_FASTER
        yield one, why


def preference_rows(found: Sequence[Trajectory], settings: RewardSettings) -> Iterable[Row]:
    """Pairs of replies to one prompt of which one led to the better candidate, all other roles having done the same.
    Ties make no pair."""
    for first, second in _pairs(found, settings):
        pair = _pair(first, second, settings)
        if isinstance(pair, str):
            continue
        (good, chosen), (bad, rejected) = pair
        texts = {"prompt": _asked(chosen), "chosen": _said(chosen), "rejected": _said(rejected)}
        yield _row(texts, good, chosen) | {
            "chosen_candidate": good.candidate, "rejected_candidate": bad.candidate,
            "rejected_status": bad.outcome.status,
        }  # fmt: skip


def not_paired(found: Sequence[Trajectory], settings: RewardSettings) -> Counter[str]:
    """Why two candidates of one round make no row of `preference`."""
    made = (_pair(first, second, settings) for first, second in _pairs(found, settings))
    return Counter(one for one in made if isinstance(one, str))


def _pairs(found: Sequence[Trajectory], settings: RewardSettings) -> Iterable[tuple[Trajectory, Trajectory]]:
    for group in rounds(found, settings):
        yield from itertools.combinations(group.members, 2)


def grpo_rows(found: Sequence[Trajectory], settings: RewardSettings, arm: Arm) -> Iterable[Row]:
    """Every reply of every group that teaches something, with its reward; `group` holds those that are compared. Ids
    and log-probabilities where they are known; the sets of allowed tokens are in the form `trajectories`."""
    groups = rounds(found, settings, arm)
    returns = turn_returns(groups)
    for group in groups:
        for index, member in enumerate(group.members):
            for decision in made_by_round(member):
                if left_out(group, index, decision) is None:
                    yield _grpo_row(group, index, decision, returns)


def _grpo_row(group: Round, index: int, decision: Decision, returns: Mapping[tuple[str, str], float]) -> Row:
    member, rewards, tokens = group.members[index], group.rewards, decision.tokens
    row = _row({"prompt": _asked(decision), "completion": _said(decision)}, member, decision)
    # One reply may have led to several candidates: each is a draw of its own.
    row["id"] = content_hash([row["id"], member.id, member.episode])[:32]
    return row | {
        "group": content_hash([group.key, decision.role, decision.kind])[:16],
        # A role that kept everything as it was decided so, and shares in what came of it.
        "reward": group.credit.roles[index].get(decision.role, float(rewards.rewards[index])),
        "turn_return": returns[member.episode, member.id], "gate": rewards.gates[index],
        "copies": rewards.copies[index], "exact": group.credit.exact[index],
        "reward_parts": json.dumps(rewards.parts[index], sort_keys=True),
        "candidate": member.candidate, "policy_version": decision.policy_version,
        "prompt_ids": tokens.prompt_ids if tokens else None,
        "completion_ids": tokens.completion_ids if tokens else None,
        "logprobs": tokens.logprobs if tokens else None, "decision_mask": tokens.decision_mask if tokens else None,
        "temperature": tokens.temperature if tokens else None,
    }  # fmt: skip


def _row(texts: Row, one: Trajectory, decision: Decision) -> Row:
    """The columns that all text forms have."""
    return texts | {
        "id": content_hash([texts, decision.role])[:32], "role": decision.role, "kind": decision.kind,
        "turn": decision.turn, "policy": decision.policy, "problem": one.problem, "task": one.task,
        "operator_class": one.operator_class, "device": one.device, "arch": one.arch, "episode": one.episode,
    }  # fmt: skip


def _asked(decision: Decision) -> list[Row]:
    return [message.model_dump() for message in decision.prompt or ()]


def _said(decision: Decision) -> list[Row]:
    return [{"role": "assistant", "content": decision.completion}]


def _beats(one: Trajectory, other: Trajectory, settings: RewardSettings) -> int:
    """1, -1, or 0 where they tie or cannot be compared."""
    pair = [standing(one, settings), standing(other, settings)]
    if "absent" in (pair[0].standing, pair[1].standing) or one.device != other.device or pair[0].key == pair[1].key:
        return 0
    right = [member for member in pair if member.standing == "verified"]
    basis = shared_basis(right)
    costs = [member.cost(basis) if member.standing == "verified" else None for member in pair]
    if any(cost is None and member.standing == "verified" for cost, member in zip(costs, pair, strict=True)):
        return 0
    won = wins([c.log if c else None for c in costs], [c.half if c else 0.0 for c in costs], settings.margin)
    return int(won[0, 1])


def _pair(
    first: Trajectory, second: Trajectory, settings: RewardSettings
) -> tuple[tuple[Trajectory, Decision], tuple[Trajectory, Decision]] | str:
    """The better one and the one role's reply that made it so, and the same of the other; or why there is none."""
    better = _beats(first, second, settings)
    ours, theirs = ({one.role: one for one in own.decisions} for own in (first, second))
    roles = [
        role for role in dict.fromkeys([*ours, *theirs])
        if role not in ours or role not in theirs or ours[role].slots != theirs[role].slots or role == "writer"
    ]  # fmt: skip
    if not any(decision.textual for own in (first, second) for decision in own.decisions):
        return WORDLESS
    if not better:
        return _incomparable(first, second, settings)
    if len(roles) != 1 or roles[0] not in ours or roles[0] not in theirs:
        return MANY_ROLES
    one, other = ours[roles[0]], theirs[roles[0]]
    if not (one.textual and other.textual):
        return WORDLESS
    if one.prompt_hash != other.prompt_hash or one.completion == other.completion:
        return OTHER_QUESTIONS
    made = (first, one), (second, other)
    return made if better > 0 else made[::-1]


def _incomparable(first: Trajectory, second: Trajectory, settings: RewardSettings) -> str:
    """Why neither is better."""
    members = [standing(one, settings) for one in (first, second)]
    if absent := [one.gate for one in members if one.standing == "absent"]:
        return gate_words(absent[0])
    return FAILED_BOTH if all(one.standing == "incorrect" for one in members) else TIED
