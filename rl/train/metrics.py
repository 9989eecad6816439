"""What is written down while a model is trained: JSON lines always, TensorBoard where it is installed.

Names: `reward/mean`, `reward/std`, `percentile/mean`, `groups_all_equal`, `infrastructure_errors`, `entropy` (nats a
decision, estimated from what was drawn), `completion_len` (tokens), `decisions` (tokens with a choice), `loss`,
`grad_norm`, `learning_rate`, `kl`, `clip_frac/low`, `clip_frac/high`, `ratio/mean`, `importance/mean`, `lag/mean`,
`lag/max`, `stale`, `tokens/s` (read by updates), `sampled_tokens/s`, `time/...` (seconds), `eval/...`,
`groups_refilled` (groups sampled in place of others), `rejudge/judged`, `rejudge/lost`, `rejudge/holes` (of a batch).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import statistics
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from warpsmith.rl.train.task import Batch, Sample

Figures = Mapping[str, float]


class MetricSink(Protocol):
    """Where figures go."""

    def log(self, step: int, figures: Figures) -> None:
        """The figures of an update; NaN stands for one that was not taken."""

    def close(self) -> None:
        """No more follow."""


class JsonLines:
    """One object a line, on the disk when `log` returns. Thread-safe."""

    def __init__(self, path: Path, *, before: int | None = None) -> None:
        """Appends. `before`: lines of this step and later ones are dropped first: they are made anew."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if before is not None and path.exists():
            kept = [line for line in path.read_text().splitlines() if _earlier(line, before)]
            path.write_text("".join(f"{line}\n" for line in kept))
        self._file = path.open("a")
        self._lock = threading.Lock()

    def log(self, step: int, figures: Figures) -> None:
        """Figures that were not taken are left out."""
        self.write({"step": step} | {name: one for name, one in figures.items() if math.isfinite(one)})

    def write(self, line: Mapping[str, Any]) -> None:
        """Any other object."""
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()


def _earlier(line: str, step: int) -> bool:
    try:
        found: int = json.loads(line).get("step", -1)
    except ValueError:
        return False
    return found < step


class TensorBoard:
    """Scalars for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder))

    def log(self, step: int, figures: Figures) -> None:
        """Figures that were not taken are left out."""
        for name, one in figures.items():
            if math.isfinite(one):
                self._writer.add_scalar(name, one, step)

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


def sinks(folder: Path, *, before: int) -> list[MetricSink]:
    """`metrics.jsonl`, and TensorBoard's events in `tensorboard/` where it is installed."""
    found: list[MetricSink] = [JsonLines(folder / "metrics.jsonl", before=before)]
    if importlib.util.find_spec("tensorboard") is not None:
        found.append(TensorBoard(folder / "tensorboard"))
    return found


def batch_figures(batch: Batch) -> dict[str, float]:
    """What a batch says by itself."""
    samples = batch.samples
    rewards = [one.reward for one in samples if one.reward is not None]
    percentiles = [one.percentile for one in samples if one.percentile is not None]
    drawn = [lp for one in samples for lp, forced in _tokens(one) if not forced]
    tokens = sum(len(one.decisions.completion_ids) for one in samples)
    return {
        "reward/mean": _mean(rewards),
        "reward/std": statistics.pstdev(rewards) if rewards else math.nan,
        "percentile/mean": _mean(percentiles),
        "verified": _mean([float(one.verified) for one in samples if one.reward is not None]),
        "groups_all_equal": equal_groups(samples),
        "infrastructure_errors": 1 - len(rewards) / max(len(samples), 1),
        "unique": len({(one.task, one.text) for one in samples}) / max(len(samples), 1),
        "entropy": -_mean(drawn),
        "completion_len": tokens / max(len(samples), 1),
        "decisions": len(drawn) / max(len(samples), 1),
        "sampled_tokens/s": tokens / batch.sampling_s if batch.sampling_s else math.nan,
        "time/sampling": batch.sampling_s,
        "time/scoring": batch.scoring_s,
        "groups_refilled": float(batch.refilled),
        "rejudge/judged": float(batch.rejudged),
        "rejudge/lost": float(batch.rejudge_lost),
        "rejudge/holes": float(len(batch.holes)),
    }


def equal_groups(samples: Sequence[Sample]) -> float:
    """Share of the groups whose advantages are all 0: they teach nothing."""
    groups: dict[int, bool] = {}
    for one in samples:
        groups[one.group] = groups.get(one.group, True) and one.advantage == 0
    return _mean([float(equal) for equal in groups.values()])


def _tokens(one: Sample) -> Any:
    return zip(one.decisions.logprobs, one.decisions.forced, strict=True)


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures) if figures else math.nan
