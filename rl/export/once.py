"""Every trajectory once: the same decisions with the same result teach the same, however many runs hold them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.rl.records import Trajectory


def once(found: Iterable[Trajectory]) -> list[Trajectory]:
    """Each content hash once, in order of first appearance, with the number of its copies. Of several the one that was
    judged furthest stays."""
    kept: dict[str, Trajectory] = {}
    for one in found:
        known = kept.get(one.id)
        if known is None:
            kept[one.id] = one
            continue
        better = one if one.level == "full" and known.level == "screen" else known
        kept[one.id] = better.model_copy(update={"copies": known.copies + one.copies})
    return list(kept.values())


def distinct(found: Iterable[Trajectory]) -> list[Trajectory]:
    """Each content once within its run. What several runs have in common are several draws: groups are not to lose
    members to each other."""
    kept: dict[tuple[str, str], Trajectory] = {}
    for one in found:
        kept.setdefault((one.episode, one.id), one)
    return list(kept.values())


def load(path: Path) -> list[Trajectory]:
    """The trajectories of a JSON lines file. UserError names the line that is none."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "name a file of `export --as trajectories`"
        raise UserError(f"{path} cannot be read ({error}): {remedy}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Trajectory.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the line"
            raise UserError(
                f"{path}:{number} is no trajectory of this version ({place}: {first['msg']}): export the run again"
            ) from error
    return found
