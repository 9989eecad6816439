"""The training loop: take a batch, update the policy, publish it, write down what happened.

A folder of a training: `metrics.jsonl`, `trace.jsonl`, `tensorboard/`, `checkpoints/STEP/`, `policy/vSTEP/`.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from warpsmith.rl.train.checkpoint import (
    Checkpoint,
    check_same,
    checkpoints,
    generators,
    read_checkpoint,
    set_generators,
    write_checkpoint,
)
from warpsmith.rl.train.ending import Doing, Interrupts
from warpsmith.rl.train.feed import Background, Feed, FeedState, Inline
from warpsmith.rl.train.held_out import evaluated, means
from warpsmith.rl.train.logprobs import Part, packed
from warpsmith.rl.train.losses import LossInputs, LossSettings, Totals, importance_weights, policy_loss
from warpsmith.rl.train.metrics import JsonLines, MetricSink, batch_figures, sinks
from warpsmith.rl.train.policy import Policy, load_policy
from warpsmith.rl.train.ranks import Ranks, Shard
from warpsmith.rl.train.sampler import Source
from warpsmith.rl.train.settings import TrainSettings
from warpsmith.rl.train.task import Asked, Batch, Sample
from warpsmith.rl.train.watch import Watch

log = logging.getLogger(__name__)

Sums = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class Trained:
    """How a training ended."""

    step: int
    stop: str
    """`steps`, `collapse` or `interrupted`."""
    policy: Path
    """The last version."""
    figures: dict[str, float]
    """Of the last update."""


def train(
    settings: TrainSettings,
    source: Source,
    folder: Path,
    *,
    held_out: Sequence[Asked] = (),
    heard: Callable[[int, dict[str, float]], None] = lambda step, figures: None,
    interrupted: Callable[[], bool] = lambda: False,
    doing: Doing = lambda what, seconds: None,
) -> Trained:
    """Trains in a folder, and goes on where it has a checkpoint. `heard` is told the figures of each update, and those
    of an evaluation without one; `doing` what takes long, often. `interrupted` is asked often, and ends the training
    with a checkpoint: behind the update that is being made, else at once. A batch or an evaluation that is under way is
    made anew when the training goes on. UserError."""
    trainer = Trainer(settings, source, folder, held_out)
    try:
        return trainer.run(heard, interrupted, doing)
    finally:
        trainer.close()


class Trainer:
    """One training."""

    def __init__(self, settings: TrainSettings, source: Source, folder: Path, held_out: Sequence[Asked] = ()) -> None:
        torch.manual_seed(settings.seed)
        self.ranks = Ranks.of_environment(settings.model.device)
        if self.ranks.device is not None:
            model = settings.model.model_copy(update={"device": self.ranks.device})
            settings = settings.model_copy(update={"model": model})
        self.settings = settings
        self.policy: Policy = load_policy(settings.model)
        self._loss = LossSettings(**settings.loss.model_dump())
        self._optimizer = torch.optim.AdamW(
            list(self.policy.trained().values()), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._folder, self._held_out = folder, held_out
        self._step = 0
        self._told: dict[str, float] = {}
        self._owed = True
        """Whether the evaluation at this step is still to be made, as it is before the first update."""
        before = self._resumed()
        self._watch = Watch(settings.watch, before.watch if before else None)
        self._sinks: list[MetricSink] = sinks(folder, before=self._step + (not self._owed)) if self.ranks.first else []
        self._trace = JsonLines(folder / ("trace.jsonl" if self.ranks.first else f"trace-{self.ranks.index}.jsonl"))
        self._feed: Feed = self._make_feed(Shard(source, self.ranks), before)

    def run(
        self,
        heard: Callable[[int, dict[str, float]], None],
        interrupted: Callable[[], bool],
        doing: Doing = lambda what, seconds: None,
    ) -> Trained:
        """All updates that are left."""
        self._interrupts = Interrupts(self.ranks, interrupted, doing)
        stop = self._paid(heard)
        while stop is None and self._step < self.settings.steps:
            stop = self._turn(heard)
        return Trained(self._step, stop or "steps", self.save(), self._told)

    def _paid(self, heard: Callable[[int, dict[str, float]], None]) -> str | None:
        """Makes the evaluation that is due before the next update; why that ends the training, or None."""
        if not self._owed:
            return None
        figures = self._told
        if self._held_out and self.settings.eval_every:
            figures = self._looked(figures)
        else:
            self._owed = False
        if figures:
            self._log(self._step, figures)
        if self._owed:
            return "interrupted"
        if figures:
            heard(self._step, figures)
        return None

    def _turn(self, heard: Callable[[int, dict[str, float]], None]) -> str | None:
        """One update; why the training ends with it, or None."""
        waiting = time.monotonic()
        batch = self._batch()
        if batch is None:
            return "interrupted"
        figures = self._one_step(batch, time.monotonic() - waiting)
        heard(self._step, figures)
        if self._collapsed(figures):
            return "collapse"
        left = self._step < self.settings.steps
        if self._owed or (left and self._interrupts.heard()):
            return "interrupted"
        every = self.settings.checkpoint_every
        if left and every and self._step % every == 0:
            self.save()
        return None

    def close(self) -> None:
        """Ends the sampler and closes the files."""
        self._feed.close()
        for sink in self._sinks:
            sink.close()
        self._trace.close()

    def save(self) -> Path:
        """Writes a checkpoint and the policy's version; the folder of the latter."""
        path = self._folder / "policy" / f"v{self._step:08d}"
        feed = self._feed.state()
        ready = self.ranks.gathered(feed.ready)
        numbers = self.ranks.gathered(generators())
        if self.ranks.first:
            one = Checkpoint(
                step=self._step, settings=self.settings, weights=self.policy.snapshot(),
                optimizer=self._optimizer.state_dict(), watch=self._watch.state, ready=ready,
                published=feed.weights, generators=numbers, model=self.policy.origin,
                owed=self._told if self._owed else None,
            )  # fmt: skip
            write_checkpoint(self._folder / "checkpoints", one, self.settings.keep)
            self.policy.save(path)
            for old in sorted(path.parent.glob("v*"))[: -self.settings.keep]:
                shutil.rmtree(old)
        self.ranks.wait()
        return path

    def _batch(self) -> Batch | None:
        """The one that is due; None where the training is to end first."""

        def waited(check: Callable[[], None]) -> bool:
            self._feed.ready(self._step, check)
            return True

        what = f"update {self._step + 1}/{self.settings.steps}: waiting for replies and their verdicts"
        return self._feed.take(self._step) if self._interrupts.tried(what, waited) else None

    def _one_step(self, batch: Batch, waited_s: float) -> dict[str, float]:
        """Learns from the batch of this step, publishes what came of it, and looks at it where that is due."""
        started = time.monotonic()
        self._tell_holes(batch)
        figures = self.ranks.mean(batch_figures(batch) | self._update(batch))
        ended = time.monotonic()
        self._span("update", self._step, started, ended)
        self._step += 1
        self.policy.set_version(self._step)
        self._feed.publish(self._step)
        figures |= {
            "time/waiting": waited_s, "time/update": ended - started, "sync_s": time.monotonic() - ended,
            "tokens/s": figures["tokens"] / (ended - started),
        }  # fmt: skip
        every = self.settings.eval_every
        if self._held_out and every and (self._step % every == 0 or self._step == self.settings.steps):
            figures = self._looked(figures)
        self._log(self._step, figures)
        return figures

    def _tell_holes(self, batch: Batch) -> None:
        for hole in batch.holes:
            log.warning(
                "step %d: a hole of the judge: %s passed and, judged once more, is %s (%s); task %s",
                self._step + 1, hole.candidate[:16], hole.status, hole.message, hole.task,
            )  # fmt: skip
            self._trace.write({"event": "hole", "at_step": self._step + 1, "hole": hole.model_dump(mode="json")})

    def _update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step for each epoch; none where nothing is to be learnt."""
        lags = [self._step - one.version if one.version >= 0 else 0 for one in batch.samples]
        kept = [
            one
            for one, lag in zip(batch.samples, lags, strict=True)
            if one.reward is not None and lag <= self.settings.overlap.max_lag and not all(one.decisions.forced)
            and (self._loss.name != "sft" or one.advantage != 0)
        ]  # fmt: skip
        tokens = sum(one.decisions.forced.count(False) for one in kept)
        # Without a divergence or an entropy bonus a sample with no advantage has no gradient.
        whole = self._loss.kl or self._loss.entropy
        active = [one for one in kept if whole or one.advantage != 0]
        sequences, tokens_of_all, active_of_all = self.ranks.added([len(kept), tokens, len(active)])
        totals = Totals(int(sequences), tokens_of_all)
        figures = {
            "lag/mean": sum(lags) / max(len(lags), 1), "lag/max": float(max(lags, default=0)),
            "stale": sum(lag > self.settings.overlap.max_lag for lag in lags) / max(len(lags), 1),
            "trained": len(active) / max(len(batch.samples), 1), "tokens": 0.0,
            "learning_rate": self._set_rate(),
        }  # fmt: skip
        if not active_of_all:
            return figures
        self.policy.train_mode()
        parts = [
            _Part(some, packed([one.decisions for one in some], self.policy.device)) for some in self._pieces(active)
        ]
        self._prepare(parts)
        sums: Sums = defaultdict(float)
        for _ in range(self.settings.epochs):
            self._epoch(parts, totals, sums)
        figures["tokens"] = float(sum(one.part.count for one in parts) * self.settings.epochs)
        return figures | _means(sums, self.settings.epochs)

    def _epoch(self, parts: Sequence[_Part], totals: Totals, sums: Sums) -> None:
        """One step of the optimizer on the whole batch; adds to `sums`."""
        self._optimizer.zero_grad(set_to_none=True)
        for one in parts:
            logprobs, entropies = self.policy.logprobs(one.part)
            old = one.old if one.old is not None else one.part.behaviour
            inputs = LossInputs(
                logprobs, old, one.advantages, one.part.mask, reference=one.reference, importance=one.importance,
                entropies=entropies,
            )  # fmt: skip
            made = policy_loss(inputs, self._loss, totals)
            made.loss.backward()  # type: ignore[no-untyped-call]
            for name, found in made.sums.items():
                sums[name] += found
            sums["loss"] += float(made.loss.detach())
        self.ranks.add_gradients(self.policy.trained().values())
        norm = torch.nn.utils.clip_grad_norm_(self.policy.trained().values(), self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            log.warning("step %d: the gradient is not finite; nothing was learnt from this batch", self._step)
        else:
            self._optimizer.step()
        sums["grad_norm"] += float(norm)

    @torch.no_grad()
    def _prepare(self, parts: Sequence[_Part]) -> None:
        """Log-probabilities that stay the same for all epochs: of the policy before them, and of the reference."""
        if self.settings.old == "recomputed" and self._loss.name != "sft":
            for one in parts:
                one.old, _ = self.policy.logprobs(one.part)
                one.importance = importance_weights(
                    one.old, one.part.behaviour, one.part.mask, self._loss.importance_cap
                )
        if self._loss.kl:
            with self.policy.reference():
                for one in parts:
                    one.reference, _ = self.policy.logprobs(one.part)

    def _pieces(self, samples: Sequence[Sample]) -> list[Sequence[Sample]]:
        size = self.settings.micro_batch
        return [samples[start : start + size] for start in range(0, len(samples), size)]

    def _set_rate(self) -> float:
        rate = self.settings.learning_rate * min(1.0, (self._step + 1) / (self.settings.warmup + 1))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _looked(self, figures: dict[str, float]) -> dict[str, float]:
        """With the figures of the held-out tasks; without and owing them where an interrupt came first."""
        started = time.monotonic()
        settings = self.settings
        own = self._held_out[self.ranks.index :: self.ranks.count]
        samples, seed = settings.eval_samples, settings.seed
        when = f"after update {self._step}/{settings.steps}" if self._step else "before the first update"
        rows = self._interrupts.tried(
            f"evaluation on held-out tasks {when}",
            lambda check: evaluated(self.policy, own, settings.sampling, samples=samples, seed=seed, check=check),
        )
        self._owed = rows is None
        if rows is None:
            return figures
        found = means([row for some in self.ranks.gathered(rows) for row in some])
        return figures | found | {"time/eval": time.monotonic() - started}

    def _collapsed(self, figures: dict[str, float]) -> bool:
        """Tells what the watch saw; whether the training ends for it."""
        told = self._watch.look(figures)
        for words in told:
            log.warning("step %d: %s", self._step, words)
            self._trace.write({"event": "watch", "at_step": self._step, "words": words})
        return bool(told) and self.settings.watch.action == "stop"

    def _log(self, step: int, figures: dict[str, float]) -> None:
        self._told = figures
        for sink in self._sinks:
            sink.log(step, figures)

    def _span(self, name: str, batch: int, start: float, end: float) -> None:
        self._trace.write({"span": name, "batch": batch, "start": round(start, 6), "end": round(end, 6)})

    def _make_feed(self, source: Source, before: Checkpoint | None) -> Feed:
        overlap = self.settings.overlap
        if not (overlap.background if overlap.background is not None else overlap.max_lag > 0):
            return Inline(source, self.policy, self._span)
        return Background(
            source, self.policy, overlap, self._span, last=self.settings.steps, start=self._step,
            state=FeedState(before.ready[self.ranks.index], dict(before.published)) if before else None,
        )  # fmt: skip

    def _resumed(self) -> Checkpoint | None:
        """Takes the newest checkpoint over."""
        found = checkpoints(self._folder / "checkpoints")
        if self._loss.kl:
            self.policy.keep_reference()
        if not found:
            return None
        before = read_checkpoint(found[-1], self.policy.device)
        check_same(before, self.settings, self.ranks.count, self.policy.origin)
        self._step = before.step
        self._owed, self._told = before.owed is not None, dict(before.owed or {})
        self.policy.restore(before.weights, before.step)
        self._optimizer.load_state_dict(before.optimizer)
        set_generators(before.generators[self.ranks.index])
        return before


class _Part:
    """Samples of a batch, and what is known of them before an epoch."""

    def __init__(self, samples: Sequence[Sample], part: Part) -> None:
        self.part = part
        self.advantages = torch.tensor([one.advantage for one in samples], device=part.mask.device)
        self.old: Tensor | None = None
        self.reference: Tensor | None = None
        self.importance: Tensor | None = None


def _means(sums: Sums, epochs: int) -> dict[str, float]:
    """Sums over tokens, of all epochs, as the figures that are told."""
    tokens = max(sums["tokens"], 1.0)
    names = {
        "entropy": "entropy/trained", "ratio": "ratio/mean", "kl": "kl", "importance": "importance/mean",
        "clip_low": "clip_frac/low", "clip_high": "clip_frac/high", "log_ratio_squared": "log_ratio_squared",
    }  # fmt: skip
    found = {told: sums[name] / tokens if name in sums else math.nan for name, told in names.items()}
    return found | {"loss": sums["loss"] / epochs, "grad_norm": sums["grad_norm"] / epochs}
