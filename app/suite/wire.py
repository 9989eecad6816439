"""What the suite's process and its lanes say to each other: one JSON document a line over a socket."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from warpsmith.app.suite.records import ProblemRow, SuiteProblem
from warpsmith.kernels.records import Record
from warpsmith.tools.measurement.baseline_records import BaselineRecord


class Setup(Record):
    """The first line a lane gets: what holds for all of its jobs."""

    device: str
    arch: str | None
    jobs: int
    """Compilers, and emulator workers, of this lane."""
    presence: str | None = None
    """A file that every lane holds while it lives, so that the next call does not begin beside one that is left."""
    policy: str = "builtin"
    price: tuple[str, ...] = ()
    capped: bool = False
    """Whether models may cost so much and no more: their prices must be known then."""
    seats: int = 1
    """So many parts has one GPU's memory; a problem takes as many as judging it needs."""
    lanes: int = 1
    """So many lanes use one GPU."""


class Ready(Record):
    """What a lane answers: where it runs."""

    device: str
    """As in `verified_on`."""
    driver: str | None
    versions: dict[str, str]


class SearchJob(Record):
    """Search one problem, or go on with its run."""

    kind: Literal["search"] = "search"
    problem: SuiteProblem
    mode: str
    policy: str
    budget: int
    verdicts: int
    counters: Literal["best", "all", "none"]
    minutes: float
    max_cost: float | None
    price: tuple[str, ...]
    seed: int
    home: str
    """Where a new run folder is made."""
    resume: str | None
    """The run folder to go on with."""
    last: bool = False
    """Whether a problem that does not fit into this lane's share of the memory is refused."""
    untimed: tuple[str, ...] = ()
    """Baselines to time before the first candidate."""
    baselines: str = ""
    """The folder where they are kept."""
    rollout: bool = False
    """Whether every candidate gets the full verdict."""


class BaselineJob(Record):
    """Compile baselines, so that torch.compile's cache on disk holds them, or time them, alone on the device."""

    kind: Literal["compile", "time"]
    problem: SuiteProblem
    mode: str
    modes: tuple[str, ...]
    folder: str
    """Where records are kept."""
    last: bool = False
    """Whether a mode that does not fit into this lane's share of the memory is given up."""


Job = SearchJob | BaselineJob


class Reply(Record):
    """How a job ended."""

    row: ProblemRow | None = None
    """Of a search that came to its end."""
    baselines: tuple[BaselineRecord, ...] = ()
    stopped: bool = False
    """It was told to stop; what it did is kept."""
    stuck: str | None = None
    """Why the run that was there cannot be gone on with; nothing of it is given up."""
    short_of_memory: bool = False
    """Another try with the whole device may succeed."""
    failure: str | None = None
    """Why there is neither: a fault of a process or of ours."""
    machine: str | None = None
    """What this machine lacks; the suite cannot go on."""
    cost_usd: float = 0.0
    """What models have cost for this problem, all parts of its run together."""
    screened: int = 0
    """Candidates that its run has screened, likewise."""


class Told(Record):
    """Something on the way."""

    kind: str
    data: dict[str, Any] = Field(default_factory=dict)
