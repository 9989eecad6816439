"""The schema of training data: what was decided, by whom, and what came of it. Versioned; one record a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt

from warpsmith.agents.llm.records import Message
from warpsmith.agents.local.decisions import AllowedSet, Decisions, Span
from warpsmith.kernels.records import Outcome, Record, SlotValue, content_hash

TRAJECTORY_SCHEMA = 1

Mode = Literal["optimize", "chat", "bench", "rollout"]
"""Which command the search was part of."""
Level = Literal["screen", "full"]


def _known(version: int) -> int:
    if version != TRAJECTORY_SCHEMA:
        raise ValueError(f"trajectory schema {version} is not known, this one reads {TRAJECTORY_SCHEMA}")
    return version


def _from_text(value: Any) -> Any:
    """Columns whose keys differ from row to row are JSON texts in files of one schema a column."""
    return json.loads(value) if isinstance(value, str) else value


Slots = Annotated[dict[str, SlotValue], BeforeValidator(_from_text)]
"""Slot -> value. A JSON text of the same is read as well."""


def _number(value: Any) -> Any:
    """A seed of 64 bits without sign is a text where a column holds signed ones."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


Seed = Annotated[StrictInt, BeforeValidator(_number)]


class Tokens(Record):
    """What a model of this process decided token by token. All lists but `prompt_ids` and `sets` have one entry a token
    of the completion."""

    prompt_ids: list[StrictInt]
    completion_ids: list[StrictInt]
    decision_mask: list[StrictBool]
    """Whether the grammar left a choice; forced tokens carry no gradient."""
    logprobs: list[StrictFloat]
    """Natural logarithm, over the allowed tokens alone, under the distribution that was sampled from; 0 for forced
    ones."""
    sets: list[AllowedSet]
    """The distinct sets of allowed tokens: a list of ids up to 64, a bit map beyond; `.ids` gives either."""
    allowed: list[StrictInt]
    """Index into `sets`; -1 for forced tokens."""
    temperature: StrictFloat
    seed: Seed
    dtype: str
    """Of the weights when the tokens were sampled."""
    spans: list[Span] = Field(default_factory=list)
    """Which field of the reply neighbouring tokens belong to, and whether they are a choice, text or code."""

    @classmethod
    def of(cls, decided: Decisions) -> Tokens:
        """From what was kept with the reply."""
        return cls(
            prompt_ids=list(decided.prompt_ids), completion_ids=list(decided.completion_ids),
            decision_mask=[not forced for forced in decided.forced], logprobs=list(decided.logprobs),
            sets=list(decided.sets), allowed=list(decided.allowed), temperature=decided.temperature,
            seed=decided.seed, dtype=decided.dtype, spans=list(decided.spans),
        )  # fmt: skip

    def decisions(self, model: str) -> Decisions:
        """The same as it was kept; `model` is the version of the policy."""
        return Decisions(
            model=model, dtype=self.dtype, temperature=self.temperature, seed=self.seed,
            prompt_ids=tuple(self.prompt_ids), completion_ids=tuple(self.completion_ids),
            forced=tuple(not one for one in self.decision_mask), sets=tuple(self.sets), allowed=tuple(self.allowed),
            logprobs=tuple(self.logprobs), spans=tuple(self.spans),
        )  # fmt: skip


class Decision(Record):
    """What one role did in one turn."""

    role: str
    turn: StrictInt
    """The round of the search it was made in, from 0."""
    kind: str
    """`start | joint | refine | repair | escape | freeform | plan`."""
    policy: str
    """Who decided: `builtin`, or the name of a model."""
    policy_version: str | None = None
    """Fingerprint of the weights (and of the adapter) of a model of this process; a built-in policy's package version;
    None for a server's model, whose weights nobody knows."""
    slots: Slots = Field(default_factory=dict)
    """What it set, as far as that differs from the base; `plan` holds a planner's choice."""
    why: str = ""
    prompt_hash: str | None = None
    """SHA-256 of `prompt` as it stands here; None for a decision without text."""
    prompt: list[Message] | None = None
    completion: str | None = None
    tokens: Tokens | None = None
    """None where nobody recorded them, or where a text was scrubbed: ids would spell what was taken out."""
    scrubbed: StrictBool = False
    """Whether anything was taken out of its texts."""
    prompt_tokens: StrictInt | None = None
    completion_tokens: StrictInt | None = None
    sample: StrictInt | None = None
    """Number of the draw among those from one prompt."""
    seed: Seed | None = None
    """Of the model's draws; of the search for a policy without a model."""

    @property
    def textual(self) -> bool:
        """Whether prompt and completion are there."""
        return self.prompt is not None and self.completion is not None


class Trajectory(Record):
    """One candidate: the decisions that made it from its base, and its outcome. The chain of bases is an episode's
    earlier turns."""

    schema_version: Annotated[StrictInt, AfterValidator(_known)] = TRAJECTORY_SCHEMA
    id: str
    """`identity_of` it: the same decisions with the same result have the same one, whichever run they come from."""
    episode: str
    """The run."""
    mode: Mode
    problem: str
    """Hash of the problem: module, overrides and shapes."""
    task: str
    """Name of the problem's file."""
    operators: list[str] = Field(default_factory=list)
    """Of its graph."""
    operator_class: str = "unknown"
    """`pointwise | reduction | matmul | scan | window | layout | composite | freeform | unknown`."""
    device: str
    """As in `verified_on`: `gpu:NVIDIA H200`, `emulator:sm_90`."""
    arch: str
    family: str
    kind: str
    turn: StrictInt
    role: str | None = None
    """The acting role of a refine, repair or escape round; None: several acted."""
    base: str | None = None
    """Candidate id that the decisions apply to."""
    candidate: str
    values: Slots = Field(default_factory=dict)
    """All slots of the candidate."""
    owners: Annotated[dict[str, str], BeforeValidator(_from_text)] = Field(default_factory=dict)
    """Slot -> the role that owns it."""
    decisions: list[Decision]
    outcome: Annotated[Outcome, BeforeValidator(_from_text)]
    level: Level
    """`full` only after the judge's full check."""
    samples_us: Annotated[dict[str, list[StrictFloat]], BeforeValidator(_from_text)] = Field(default_factory=dict)
    """Raw timings by contender (`candidate`, `eager`, ...), in the order they were taken; empty where none were."""
    interval_us: list[StrictFloat] | None = None
    """Of the candidate's median: 95 %, low and high."""
    reward_parts: Annotated[dict[str, StrictFloat], BeforeValidator(_from_text)] = Field(default_factory=dict)
    """What the outcome alone says, by name: `verified`, `progress`, `coverage`, `log_speedup`, `log_us`,
    `log_estimated_us`. Ranks are made anew in every group and are not stored."""
    seed: StrictInt
    copies: StrictInt = 1
    """So many of the exported runs had the same."""
    at: str = ""
    """When the outcome was told, UTC."""
    versions: Annotated[dict[str, str], BeforeValidator(_from_text)] = Field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether the judge's full check passed."""
        return self.level == "full" and self.outcome.status == "ok"


def text_hash(prompt: list[Message]) -> str:
    """What `Decision.prompt_hash` is: of the messages alone, whatever form of reply was asked for."""
    return content_hash([message.model_dump() for message in prompt])


def identity_of(trajectory: Mapping[str, Any] | Trajectory) -> str:
    """Content hash (32 hex digits) of problem, machine, base, candidate and decisions. Measurements, seeds, policy
    names and times take no part."""
    found = trajectory.model_dump() if isinstance(trajectory, Trajectory) else trajectory
    decided = [
        [one["role"], one["kind"], one["prompt_hash"], one["completion"], one["slots"]] for one in found["decisions"]
    ]
    names = ("problem", "device", "arch", "family", "base", "candidate")
    return content_hash([[found[name] for name in names], decided])[:32]
