"""What the hack watch of a training finds, on the disk: a line and a folder for each hole of the judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels.records import Candidate, Outcome, Record
from warpsmith.tools.runs.jsonlines import JsonLines
from warpsmith.tools.runs.store import RunStore, room_needed, utc_now, write_atomically

FILE, FOLDER = "holes.jsonl", "holes"


class HoleRecord(Record):
    """One line of `holes.jsonl`."""

    at: str
    """UTC."""
    problem: str
    candidate: str
    """Its content hash; the folder is named by its beginning."""
    folder: str
    first: Outcome
    """The verdict that passed it."""
    again: Outcome
    """The one that did not."""


@dataclass(frozen=True)
class Holes:
    """Of one problem of a training."""

    training: Path
    problem: str
    store: RunStore
    """Of the first verdicts: it is told the second one, so that nobody believes the first any more."""

    def add(self, candidate: Candidate, first: Outcome, again: Outcome) -> None:
        """Writes the candidate as `judge` takes it, both verdicts beside it, and the line."""
        folder = self.training / FOLDER / f"{self.problem.replace('/', '-')}-{candidate.id[:16]}"
        with room_needed(self.training, resumable=True):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "kernel.cu", candidate.source.encode())
            write_atomically(folder / "launch.json", candidate.plan.model_dump_json(indent=1).encode())
            write_atomically(folder / "first.json", first.model_dump_json(indent=1).encode())
            write_atomically(folder / "again.json", again.model_dump_json(indent=1).encode())
            record = HoleRecord(
                at=utc_now(), problem=self.problem, candidate=candidate.id, first=first, again=again,
                folder=str(folder.relative_to(self.training)),
            )  # fmt: skip
            lines = JsonLines(self.training / FILE, durable=True)
            lines.mend()
            lines.append(record.model_dump_json())
        self.store.append_outcome(again, "full")
