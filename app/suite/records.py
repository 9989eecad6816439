"""What a suite run writes: its manifest, and one row for each problem that ended."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, StrictFloat, StrictInt

from warpsmith.kernels.records import (
    SCHEMA_VERSION,
    PrecisionClass,
    Provenance,
    Quantiles,
    Record,
    SchemaVersion,
    Speedup,
)

RowStatus = Literal["verified", "unverified", "not_planned", "refused", "crashed"]
"""`unverified`: searched, nothing passed the full verdict; `not_planned`: legal, but nothing here covers it yet;
`refused`: the problem file is wrong, or asks for what this machine lacks; `crashed`: a process failed, twice."""


class SuiteProblem(Record):
    """One problem of a suite. `key` names it there, its folder and its row."""

    key: str = Field(pattern=r"^[A-Za-z0-9_@-][A-Za-z0-9_.@-]*$")
    path: str
    """Absolute; `module.py:callable` where a callable is meant."""
    name: str
    level: StrictInt | None = None
    number: StrictInt | None = None
    digest: str | None = None
    """SHA-256 of its file when the suite was made; None in older suites."""
    overrides: dict[str, str] = Field(default_factory=dict)


class SuiteManifest(Record):
    """suite.json: which problems, under which settings, on what."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    suite_id: str
    created: str
    config: dict[str, Any]
    problems: tuple[SuiteProblem, ...]
    versions: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    device: str | None = None
    """As in `verified_on`; None until the first process told."""
    driver: str | None = None
    autotuned: tuple[str, ...] = ()
    """Keys of the problems that max-autotune is measured on as well."""


class ModelsUsed(Record):
    """What models were asked for one problem and what it cost; `cost_usd` is None where a price is not known."""

    questions: StrictInt
    answered: StrictInt
    calls: StrictInt
    tokens: StrictInt
    cost_usd: StrictFloat | None
    last_failure: str | None = None


class ProblemRow(Record):
    """A line of results.jsonl: how one problem ended. A figure that was not taken is None."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    key: str
    status: RowStatus
    reason: str | None = None
    """Why nothing was verified, in a sentence."""
    problem_hash: str | None = None
    run: str | None = None
    """The run folder, below the suite's."""
    candidate: str | None = None
    family: str | None = None
    verified_on: str | None = None
    provenance: Provenance | None = None
    precision_class: PrecisionClass | None = None
    payable: bool | None = None
    """False: the problem takes trivial answers for right ones. None: it was not asked."""
    error_ratio: StrictFloat | None = None
    time_us: Quantiles | None = None
    samples: str | None = None
    """Blob of the run folder with the raw samples of candidate and baselines."""
    estimated_us: StrictFloat | None = None
    roofline_fraction: StrictFloat | None = None
    own_share: StrictFloat | None = None
    eager_peak_bytes: StrictInt | None = None
    judge_peak_bytes: StrictInt | None = None
    """The most that the process held by the end of its verdict."""
    baseline_errors: dict[str, StrictFloat] = Field(default_factory=dict)
    """The rms error of compiled baselines, in units of eager's."""
    speedup: dict[str, Speedup] = Field(default_factory=dict)
    """Over baselines that were measured in pairs with the candidate."""
    screened: StrictInt = 0
    full_verdicts: StrictInt = 0
    failures: dict[str, StrictInt] = Field(default_factory=dict)
    """Candidates by failing status."""
    worst: str | None = None
    """The commonest failure of candidates, in short."""
    stop: str | None = None
    models: ModelsUsed | None = None
    seconds: StrictFloat = 0.0
    """Spent on the search, summed over resumed parts."""
    compile_s: StrictFloat = 0.0
    """Of all candidates together, as are the next two; compiles go side by side."""
    verify_s: StrictFloat = 0.0
    time_s: StrictFloat = 0.0
