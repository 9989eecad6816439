"""A reference module that a model wrote: approved by a person, kept, and opened without running it here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels.problem import ProblemRef
from warpsmith.kernels.reference.held import HeldProblem
from warpsmith.kernels.reference.rules import check_approved, reference_hash
from warpsmith.tools.jail import held_problem
from warpsmith.tools.runs.store import room_needed, utc_now, write_atomically

NAME = "reference.py"


@dataclass(frozen=True, slots=True)
class Approval:
    """Which text a person approved, and when; `document` is what the manifest records."""

    sha256: str
    at: str

    def document(self) -> dict[str, str]:
        """As `config["approval"]` of a run."""
        return {"sha256": self.sha256, "at": self.at}


def approve_reference(text: str, approved_hash: str, folder: Path) -> tuple[HeldProblem, Approval]:
    """The problem of a module that a model wrote, once a person approved exactly this text by its hash
    (`reference_hash`, shown with the text). It is kept as reference.py in `folder` and run in confined processes alone.

    UserError where the rules refuse the text, where the hash is of another text, or where the module fails. Nothing
    runs before all that holds. EnvironmentError_ where this machine cannot confine a process.
    """
    check_approved(text, approved_hash)
    path = folder / NAME
    with room_needed(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    approval = Approval(reference_hash(text), utc_now())
    return held_problem(ProblemRef(kind="reference", path=str(path.resolve()), approved=approval.sha256)), approval


def reopened(config: dict[str, object]) -> HeldProblem | None:
    """The problem of a run whose module a model wrote, from its manifest's config; None for any other run. UserError
    where the text has changed since it was approved."""
    kept = config.get("problem")
    ref = ProblemRef.model_validate(kept) if isinstance(kept, dict) else None
    if ref is None or ref.kind != "reference":
        return None
    return held_problem(ref.model_copy(update={"lifted": None}))
