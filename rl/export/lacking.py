"""Why nothing came of what was read: how many there were, what they were left out for, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from warpsmith.rl.credit import Arm
from warpsmith.rl.export.forms import Form, not_paired, not_taught
from warpsmith.rl.export.once import distinct
from warpsmith.rl.export.rounds import (
    ALONE,
    LOST,
    MANY_ROLES,
    NOT_FASTER,
    OTHER_QUESTIONS,
    SCREENED,
    TIED,
    UNTIMED,
    WORDLESS,
    left_out,
    made_by_round,
    of_skipped,
    rounds,
)
from warpsmith.rl.records import Trajectory
from warpsmith.rl.rewards.group import NO_VERIFIED, ONE
from warpsmith.rl.rewards.settings import RewardSettings

MORE = "search with a larger --budget"
_REMEDIES: Mapping[str, str] = {
    WORDLESS: "search with --policy chat:MODEL or local:PATH, or take --as trajectories",
    SCREENED: "search with more --verdicts, roll out (every candidate is judged in full), or take the quick check with "
    "--screened",
    LOST: "go on with the run by --resume, or search anew",
    UNTIMED: "search anew on a device where candidates are timed",
    NOT_FASTER: MORE, TIED: MORE, ALONE: MORE, of_skipped(ONE): MORE,
    MANY_ROLES: f"{MORE}: in refine rounds one role acts alone",
    OTHER_QUESTIONS: f"{MORE}: several replies to one question make pairs",
    of_skipped(NO_VERIFIED): f"{MORE}, or other problems",
}  # fmt: skip
"""What helps against a reason; against any other failure of candidates: `MORE`."""


def lacking(form: Form, found: Sequence[Trajectory], settings: RewardSettings, arm: Arm = "shared") -> str:
    """What is told where a form has no row."""
    if not found:
        return f"none of its proposals was evaluated, so there is nothing for --as {form}: {MORE}"
    own = distinct(found)
    if form == "preference":
        what, reasons = "pairs of candidates of one round", not_paired(own, settings)
    elif form == "grpo":
        what, reasons = "decisions", _unrewarded(own, settings, arm)
    else:
        what, reasons = "candidates", not_taught(own, settings)
    total = sum(reasons.values())
    if not total:
        return f"its {len(own)} candidates make no {what}, which --as {form} is made of: {_remedy(Counter([ALONE]))}"
    count = f"{len(own)} candidates, {total} {what}" if what != "candidates" else f"{total} candidates"
    return f"nothing for --as {form} among {count} ({listed(reasons)}): {_remedy(reasons)}"


def listed(reasons: Mapping[str, int]) -> str:
    """How many were left out for what, most first."""
    return ", ".join(f"{number} {why}" for why, number in Counter(reasons).most_common())


def _remedy(reasons: Mapping[str, int]) -> str:
    return _REMEDIES.get(Counter(reasons).most_common(1)[0][0], MORE)


def _unrewarded(found: Sequence[Trajectory], settings: RewardSettings, arm: Arm) -> Counter[str]:
    """Why replies have no reward."""
    reasons = (
        left_out(group, index, decision)
        for group in rounds(found, settings, arm)
        for index, member in enumerate(group.members)
        for decision in made_by_round(member)
    )
    return Counter(why for why in reasons if why is not None)
