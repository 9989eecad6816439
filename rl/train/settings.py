"""Settings of a training, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Record

Stage = Literal["rft", "offline", "online"]

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class LoraSettings(Record):
    """Adapters in place of the weights themselves."""

    rank: Count = 16
    alpha: Positive = 32.0
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the layers, or `all-linear`: all but the output layer."""


class ModelSettings(Record):
    """What is trained."""

    path: Path
    """A folder as `save_pretrained` makes it, or a GGUF file."""
    adapter: Path | None = None
    """An adapter to start from."""
    lora: LoraSettings | None = LoraSettings()
    """None: all weights are trained."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the frozen weights; weights that are trained are float32."""
    autocast: bool = False
    """Whether products are computed in bfloat16."""
    gradient_checkpointing: bool = False
    """Less memory for a second forward pass; prompts are then read once for each sample."""
    device: str = "auto"


class LossSection(Record):
    """See `LossSettings`, whose names these are."""

    name: Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "sft"] = "dr_grpo"
    clip_low: Positive = 0.2
    clip_high: Positive = 0.28
    cispo_cap: Positive = 5.0
    level: Literal["token", "sequence"] | None = None
    ratio_cap: Positive | None = None
    kl: Annotated[float, Field(ge=0)] = 0.0
    kl_corrected: bool = True
    importance_cap: Positive = 2.0
    entropy: Annotated[float, Field(ge=0)] = 0.0
    length: Positive = 32.0


class SamplingSettings(Record):
    """How replies are written."""

    group_size: Count = 8
    tasks: Count = 1
    """Groups in a batch."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    explore: Share = 0.0
    """Share of the uniform distribution in choices between values."""
    text: Annotated[int, Field(ge=0)] = 0
    """Tokens that a free text may have at most."""
    lines: Count = 1024
    """Tokens that a block of code may have at most."""
    together: Count = 256
    """Replies that are written at once."""
    refill: Annotated[int, Field(ge=0)] = 0
    """Further groups that a batch may sample in place of those that teach nothing (dynamic sampling of DAPO)."""


class AsyncSettings(Record):
    """How sampling and training overlap."""

    max_lag: Annotated[int, Field(ge=0)] = 0
    """Versions that a sample may be behind the policy that is trained; 0: one after the other."""
    background: bool | None = None
    """Whether a thread samples with a copy of the policy; None: where a lag is allowed."""
    fixed: bool = False
    """Whether a batch is sampled exactly `max_lag` versions behind rather than with the newest: what is learned then
    does not depend on which side is faster."""


class WatchSettings(Record):
    """When a training is said to have collapsed: a figure beyond its limit for `patience` updates in a row; and how
    many verdicts are doubted."""

    action: Literal["warn", "stop"] = "warn"
    patience: Count = 10
    least_entropy: float | None = 0.01
    """Nats a decision, mean of a batch."""
    most_equal_groups: Share | None = 0.9
    """Share of the groups that teach nothing."""
    most_infrastructure_errors: Share | None = 0.5
    most_infrastructure_rise: Share | None = 0.2
    """By how much the share of replies that are not judged may grow: mean of `patience` updates less that of as many
    before."""
    rejudge: Annotated[int, Field(ge=0)] = 1
    """Best replies of a batch that a fresh session of the judge judges once more, with other seeds; 0: none."""


class TrainSettings(Record):
    """A training."""

    model: ModelSettings
    stage: Stage = "online"
    steps: Count = 100
    """Updates of the policy: batches, each trained on once or `epochs` times."""
    epochs: Count = 1
    micro_batch: Count = 16
    """Samples whose activations are in memory at once."""
    learning_rate: Positive = 1e-3
    warmup: Annotated[int, Field(ge=0)] = 0
    """Updates over which the rate rises."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Positive = 0.1
    loss: LossSection = LossSection()
    old: Literal["behaviour", "recomputed"] = "behaviour"
    """What the ratio is taken to: the distribution that a token was drawn from, or the policy before the batch, with
    truncated importance weights between the two."""
    scale_rewards: bool = True
    winners: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Stage rft: share of a group's verified members that is imitated."""
    sampling: SamplingSettings = SamplingSettings()
    overlap: AsyncSettings = AsyncSettings()
    watch: WatchSettings = WatchSettings()
    eval_every: Annotated[int, Field(ge=0)] = 0
    """Updates between evaluations on the held-out tasks; 0: none."""
    eval_samples: Count = 8
    checkpoint_every: Annotated[int, Field(ge=0)] = 10
    """Updates between checkpoints; 0: only at the end."""
    keep: Count = 2
    """Checkpoints and adapters that are kept."""
    seed: int = 0

    @model_validator(mode="after")
    def _fits(self) -> TrainSettings:
        if self.stage == "rft" and self.loss.name != "sft":
            raise ValueError('stage "rft" imitates: write name = "sft" under [loss]')
        if self.stage != "rft" and self.loss.name == "sft":
            raise ValueError('loss "sft" imitates what has a positive advantage only: write stage = "rft"')
        if self.stage != "rft" and self.sampling.group_size < 2:
            raise ValueError("a group of one teaches nothing: write group_size = 2 or more under [sampling]")
        if self.sampling.explore >= 1:
            raise ValueError("explore = 1 never asks the model: write less under [sampling]")
        return self


def train_settings(given: dict[str, Any], where: str) -> TrainSettings:
    """From a parsed TOML document. UserError names the first field that is wrong."""
    try:
        return TrainSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        remedy = f"; there are {', '.join(_names(first['loc']))}" if first["type"] == "extra_forbidden" else ""
        raise UserError(
            f"{where}: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}{remedy}"
        ) from None


def _names(place: Sequence[int | str]) -> list[str]:
    """The fields of the section that a wrong name stands in."""
    section: Any = TrainSettings
    for name in place[:-1]:
        section = section.model_fields[str(name)].annotation
        # A section that may be left out is one of two types.
        section = next((one for one in get_args(section) if hasattr(one, "model_fields")), section)
    return list(section.model_fields)
