"""`warpsmith export --as trajectories|sft|preference|grpo`: what runs can teach, for trainers."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer

from warpsmith.app.ending import interrupt_says
from warpsmith.kernels.errors import UserError
from warpsmith.rl.credit import Arm
from warpsmith.rl.export.forms import rows
from warpsmith.rl.export.lacking import lacking
from warpsmith.rl.export.once import distinct, once
from warpsmith.rl.export.rounds import rounds
from warpsmith.rl.export.write import require_parquet, write_rows
from warpsmith.rl.records import Trajectory
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.trajectories.folders import run_folders
from warpsmith.rl.trajectories.read import trajectories
from warpsmith.rl.trajectories.scrub import Scrubber

INTERRUPTED = "the runs are as they were, and no file is half written; run the command again"
Form = Literal["trajectories", "sft", "preference", "grpo"]


@dataclass(frozen=True, slots=True)
class TrainingExport:
    """The command's flags."""

    run: Path
    form: Form
    to: Path = Path()
    parquet: bool = False
    screened: bool = False
    credit: Arm = "shared"
    json: bool = False


def run_export_training(wanted: TrainingExport) -> int:
    """Writes `NAME-FORM.jsonl` to the folder `--to`, and tells how much there is of what. UserError where the runs hold
    nothing of the form, with what they lack."""
    with interrupt_says(INTERRUPTED):
        if wanted.to.exists() and not wanted.to.is_dir():
            raise UserError(f"--to {wanted.to}: training data takes a folder; this is a file")
        if wanted.parquet:
            require_parquet()
        folders = run_folders(wanted.run)
        read = list(trajectories(wanted.run, Scrubber.of_this_machine()))
        kept = once(read)
        settings = RewardSettings(screened=wanted.screened)
        made = rows(wanted.form, read, settings, wanted.credit)
        if not made:
            raise UserError(f"{wanted.run}: {lacking(wanted.form, read, settings, wanted.credit)}")
        name = f"{wanted.run.resolve().name}-{wanted.form}"
        files = write_rows(made, wanted.to, name, parquet=wanted.parquet)
        document: dict[str, Any] = {
            "files": [str(file) for file in files], "form": wanted.form, "rows": len(made), "runs": len(folders),
            "trajectories": len(kept), "copies": len(read) - len(kept),
            "verified": sum(one.verified for one in kept),
            "scrubbed": sum(made.scrubbed for one in kept for made in one.decisions),
        }  # fmt: skip
        if wanted.form == "grpo":
            document["groups"] = _groups(distinct(read), settings, wanted.credit)
        typer.echo(jsonlib.dumps(document) if wanted.json else _text(document))
        return 0


def _groups(kept: Sequence[Trajectory], settings: RewardSettings, arm: Arm) -> dict[str, int]:
    """How many groups there are, by why they teach nothing."""
    found: dict[str, int] = {}
    for one in rounds(kept, settings, arm):
        why = one.rewards.skipped or ("all earned the same" if one.rewards.flat else "used")
        found[why] = found.get(why, 0) + 1
    return dict(sorted(found.items()))


def _text(document: dict[str, Any]) -> str:
    lines = [*document["files"]]
    lines.append(
        f"{document['rows']} rows from {document['trajectories']} candidates of {document['runs']} run(s), "
        f"{document['verified']} verified, {document['copies']} copies left out"
    )
    if document["scrubbed"]:
        lines.append(f"{document['scrubbed']} decisions lost a key, path or name in their texts, and their token ids")
    lines += [f"groups: {count} {why}" for why, count in document.get("groups", {}).items()]
    return "\n".join(lines)
