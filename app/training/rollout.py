"""`warpsmith rollout`: a suite whose candidates are all judged in full, and what its runs can teach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpsmith.app.display import Display
from warpsmith.app.suite.command import run_bench
from warpsmith.app.suite.settings import SuiteSettings
from warpsmith.app.wording import count
from warpsmith.kernels.errors import UserError
from warpsmith.rl.export.once import distinct
from warpsmith.rl.export.rounds import made_by_round, rounds
from warpsmith.rl.records import Trajectory
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.trajectories.read import trajectories
from warpsmith.rl.trajectories.scrub import Scrubber


def run_rollout(settings: SuiteSettings, display: Display) -> int:
    """Runs the suite and tells, beside its result, how many trajectories there are; exit codes as of a suite."""
    return run_bench(settings, display, more=taught)


def taught(folder: Path) -> tuple[dict[str, Any], str]:
    """What the runs of a rollout hold: `trajectories` of the document, and a line for a reader."""
    try:
        found = list(trajectories(folder, Scrubber.of_this_machine()))
    except UserError:
        # No run was begun.
        found = []
    facts = counted(found)
    return {"trajectories": facts}, _text(facts, folder)


def counted(found: list[Trajectory]) -> dict[str, Any]:
    """By what training asks for: candidates, verified ones, decisions with words and with token ids, and groups by why
    they teach nothing, or `used`."""
    every = [decision for one in found for decision in made_by_round(one) if decision.textual]
    groups: dict[str, int] = {}
    for one in rounds(distinct(found), RewardSettings()):
        why = one.rewards.skipped or ("all earned the same" if one.rewards.flat else "used")
        groups[why] = groups.get(why, 0) + 1
    return {
        "candidates": len(found), "verified": sum(one.verified for one in found),
        "screened": sum(one.level == "screen" for one in found), "replies": len(every),
        "with_tokens": sum(one.tokens is not None for one in every), "groups": dict(sorted(groups.items())),
    }  # fmt: skip


def _text(facts: Mapping[str, Any], folder: Path) -> str:
    used = count(facts["groups"].get("used", 0), "group")
    replies = f"{facts['replies']} replies, {facts['with_tokens']} of them with token ids"
    return (
        f"  {count(facts['candidates'], 'trajectory').replace('trajectorys', 'trajectories')}, {facts['verified']} "
        f'verified; {replies}; {used} to learn from\n  train on it with trajectories = ["{folder}"] (docs/training.md)'
    )
