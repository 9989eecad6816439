"""The folder of a comparison: what is compared, and a suite run for each arm and seed."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpsmith.app.suite.folder import MANIFEST
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import SCHEMA_VERSION, Record, SchemaVersion
from warpsmith.tools.runs.store import room_needed, write_atomically

NAME = "evaluate.json"


class Comparison(Record):
    """evaluate.json."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    created: str
    suite: tuple[str, ...]
    arms: tuple[str, ...]
    """Policies, the one that is asked about first."""
    seeds: tuple[int, ...]
    budget: int
    config: dict[str, Any]
    """Whatever else the suite runs are made with."""
    against: tuple[str, ...] = ()
    """Folders of candidates that are judged beside the policies."""


@dataclass(frozen=True, slots=True)
class ComparisonFolder:
    """Where a comparison lies."""

    path: Path

    @classmethod
    def create(cls, out: Path, what: Comparison) -> ComparisonFolder:
        """A new one under `out`."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = out / f"{stamp}-evaluate-{_clean(what.arms[0])}-{secrets.token_hex(3)}"
        with room_needed(path):
            path.mkdir(parents=True)
            write_atomically(path / NAME, what.model_dump_json(indent=1).encode())
        return cls(path)

    def read(self) -> Comparison:
        """What it compares. UserError where it is none."""
        try:
            return Comparison.model_validate_json((self.path / NAME).read_bytes())
        except FileNotFoundError:
            raise UserError(f"{self.path} is no comparison (it lacks {NAME}): name one that evaluate made") from None
        except (OSError, ValidationError) as error:
            raise UserError(f"{self.path / NAME} cannot be read ({str(error).splitlines()[0]}): begin anew") from error

    def home(self, arm: str, seed: int) -> Path:
        """Where the suite run of an arm and seed is made."""
        return self.path / f"{_clean(arm)}-s{seed}"

    def begun(self, arm: str, seed: int) -> Path | None:
        """The suite run of an arm and seed, where there is one."""
        found = sorted(path.parent for path in self.home(arm, seed).glob(f"*/{MANIFEST}"))
        return found[-1] if found else None


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60] or "policy"
