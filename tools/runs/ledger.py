"""The failure ledger: what went wrong in a run, with stage, slot values and a signature that like failures share."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from warpsmith.kernels.records import SCHEMA_VERSION, Failure, Outcome, Record, SchemaVersion, SlotValue, Status
from warpsmith.tools.runs.jsonlines import JsonLines

_LONGEST = 240
_KEPT = r"\b(?:(?:b?float|complex|u?int|sm_)\d+|[bfsu](?:8|16|32|64))\b"
"""Names whose number is part of what they are: types and architectures."""
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\x1b\[[0-9;]*m", ""),
        (r"(?<![\w.])(?:/[\w.+-]+){2,}", "<path>"),
        (r"\b0x[0-9a-fA-F]+\b", "<n>"),
        # Content hashes; a word of letters alone is a word.
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}\b", "<id>"),
        (r"\b(?:nan|inf|infinity)\b", "<n>"),
        # Numbers, and those at the end of names: temporaries such as v12 or %r7.
        (rf"({_KEPT})|[-+]?\d+(?:,\d{{3}})*(?:\.\d+)?(?:[eE][-+]?\d+)?", r"\1<n>"),
        (rf"({_KEPT})<n>", r"\1"),
        (r"<n>(?:(?:,\s*|\s*[x×]\s*)<n>)+", "<n>"),
        (r"<n>,(?=\))", "<n>"),
        (r"\s+", " "),
    )
)


class FailureEntry(Record):
    """A line of failures.jsonl: one way in which one candidate failed at one level."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    candidate: str
    level: Literal["screen", "full"]
    status: Status
    stage: str
    kind: str | None = None
    slot: str | None = None
    """The slot whose text or value is at fault, where that is known."""
    family: str
    slots: dict[str, SlotValue] = Field(default_factory=dict)
    signature: str
    """Hash of stage, kind, slot and the normalised message (12 hex digits)."""
    text: str
    """The normalised message."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two entries the same."""
        return self.candidate, self.level, self.signature


def normalised(message: str) -> str:
    """A message without what differs from case to case: numbers, addresses, paths, hashes, numbered names."""
    for pattern, text in _RULES:
        message = pattern.sub(text, message)
    message = message.strip()
    return message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"


def signature(failure: Failure) -> tuple[str, str]:
    """Hash and normalised message of a failure; equal for failures of one kind, in every run and process."""
    text = normalised(failure.message)
    parts = "\x1f".join((failure.stage, failure.kind or "", failure.slot or "", text))
    return hashlib.sha256(parts.encode()).hexdigest()[:12], text


def entry_of(outcome: Outcome, level: Literal["screen", "full"]) -> FailureEntry | None:
    """The ledger's entry of an outcome; None where nothing failed."""
    failure = outcome.failure
    if failure is None:
        return None
    digest, text = signature(failure)
    return FailureEntry(
        candidate=outcome.candidate, level=level, status=outcome.status, stage=failure.stage, kind=failure.kind,
        slot=failure.slot, family=outcome.family, slots=outcome.slots, signature=digest, text=text,
    )  # fmt: skip


def entries(outcomes: Iterable[Outcome]) -> Iterator[FailureEntry]:
    """The entries of a run's outcomes, without doubles. A candidate that passed its screening failed later."""
    passed: set[str] = set()
    seen: set[tuple[str, str, str]] = set()
    for outcome in outcomes:
        if outcome.status == "screened":
            passed.add(outcome.candidate)
        found = entry_of(outcome, "full" if outcome.candidate in passed else "screen")
        if found is not None and found.key not in seen:
            seen.add(found.key)
            yield found


class Ledger:
    """failures.jsonl of a run: grows as the run goes. results.jsonl is the truth that it can be made from again."""

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path, durable=False)
        self._known: set[tuple[str, str, str]] | None = None

    def add(self, outcome: Outcome, level: Literal["screen", "full"]) -> None:
        """Adds the outcome's failure, if it has one that the ledger lacks."""
        found = entry_of(outcome, level)
        if found is not None and found.key not in self._keys():
            self._append(found)

    def complete(self, outcomes: Iterable[Outcome]) -> None:
        """After a kill: mends the file and adds what results.jsonl has and the ledger lacks."""
        self._lines.mend()
        self._known = None
        # A line of results.jsonl does not say its level, so levels are left out here.
        known = {(candidate, digest) for candidate, _, digest in self._keys()}
        for found in entries(outcomes):
            if (found.candidate, found.signature) not in known:
                self._append(found)

    def _keys(self) -> set[tuple[str, str, str]]:
        if self._known is None:
            self._known = {entry.key for entry in self.read()}
        return self._known

    def _append(self, found: FailureEntry) -> None:
        self._lines.append(found.model_dump_json())
        self._keys().add(found.key)

    def read(self) -> list[FailureEntry]:
        """All whole entries; lines of another version are left out, for the ledger is made again from the results."""
        found = []
        for line in self._lines.lines():
            with contextlib.suppress(ValidationError):
                found.append(FailureEntry.model_validate_json(line))
        return found
