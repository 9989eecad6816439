"""Checkpoints of a training: whole or not there, and enough to go on bit for bit."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Record
from warpsmith.rl.train.feed import Weights
from warpsmith.rl.train.policy import replaced
from warpsmith.rl.train.settings import TrainSettings
from warpsmith.rl.train.task import Batch

FORMAT = 1
FREE = {
    "steps", "checkpoint_every", "keep", "eval_every", "eval_samples", "watch", "micro_batch", "sampling.together",
    "model.device", "model.gradient_checkpointing", "model.path",
}  # fmt: skip
"""Settings that a training that is gone on with may have anew. `micro_batch`, `together` and what concerns the device
change sums in their last bits; a path may lead elsewhere, the weights there are the same."""
_THREAD = "overlap.background"
"""The same for batches that are never ahead: a thread samples what the trainer would."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that an update depends on."""

    step: int
    """Updates that were made; the version of the policy."""
    settings: TrainSettings
    weights: Weights
    optimizer: dict[str, Any]
    watch: Mapping[str, Any]
    ready: Sequence[tuple[Batch, ...]]
    """Batches that were sampled and not trained on, of each process."""
    published: Mapping[int, Weights]
    """Weights that batches to come are to be sampled with."""
    generators: Sequence[dict[str, Any]]
    """Of each process."""
    model: str | None = None
    """Fingerprint of the weights that training began from; None: the checkpoint is older than this."""
    owed: Mapping[str, float] | None = None
    """Figures of the last update where the evaluation behind it is still to be made; None: it was made, or is none."""


def generators() -> dict[str, Any]:
    """The states of all random number generators of this process."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": json.dumps(random.getstate()),
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *map(float, rest)],
    }


def set_generators(states: Mapping[str, Any]) -> None:
    """Puts the generators back."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])
    version, numbers, gauss = json.loads(states["python"])
    random.setstate((version, tuple(numbers), gauss))
    name, keys, place, has, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), int(place), int(has), cached))


def write_checkpoint(folder: Path, one: Checkpoint, keep: int) -> Path:
    """Writes `folder/STEP` and removes all but the newest `keep`."""
    path = folder / f"{one.step:08d}"
    with replaced(path) as fresh:
        state = {
            "format": FORMAT, "step": one.step, "settings": one.settings.model_dump_json(), "weights": one.weights,
            "optimizer": one.optimizer, "watch": dict(one.watch),
            "published": dict(one.published), "generators": list(one.generators),
            "model": one.model, "owed": None if one.owed is None else dict(one.owed),
        }  # fmt: skip
        _save(state, fresh / "state.pt")
        with gzip.open(fresh / "ready.jsonl.gz", "wt", compresslevel=1) as lines:
            rows = ((rank, batch) for rank, ready in enumerate(one.ready) for batch in ready)
            lines.writelines(f'{{"rank": {rank}, "batch": {batch.model_dump_json()}}}\n' for rank, batch in rows)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return path


def _save(state: dict[str, Any], path: Path) -> None:
    """OSError where the disk is full: given a path, or at its end, torch tells of that in words of its own."""
    with path.open("wb", buffering=0) as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def checkpoints(folder: Path) -> list[Path]:
    """All of a training, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if (path / "state.pt").is_file())


def read_checkpoint(path: Path, device: Any) -> Checkpoint:
    """UserError where it cannot be read."""
    try:
        state = torch.load(path / "state.pt", map_location=device, weights_only=True)
        if state["format"] != FORMAT:
            raise UserError(f"{path} has format {state['format']}, this version reads {FORMAT}")
        with gzip.open(path / "ready.jsonl.gz", "rt") as file:
            lines = [_Ready.model_validate_json(line) for line in file]
        numbers = [_on_cpu(one) for one in state["generators"]]
        ready = [tuple(line.batch for line in lines if line.rank == rank) for rank in range(len(numbers))]
        return Checkpoint(
            step=state["step"], settings=TrainSettings.model_validate_json(state["settings"]), weights=state["weights"],
            optimizer=state["optimizer"], watch=state["watch"],
            ready=ready, published=state["published"], generators=numbers, model=state.get("model"),
            owed=state.get("owed"),
        )  # fmt: skip
    except UserError:
        raise
    except Exception as error:  # a torn file makes torch's reader fail in any way
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path} cannot be read as a checkpoint ({reason}); remove it to go on from an older one"
        ) from error


class _Ready(Record):
    rank: int
    batch: Batch


def _on_cpu(numbers: dict[str, Any]) -> dict[str, Any]:
    """States of generators are read on the CPU, wherever the weights go."""
    name, keys, *rest = numbers["numpy"]
    return numbers | {
        "torch": numbers["torch"].cpu(), "cuda": [one.cpu() for one in numbers["cuda"]],
        "numpy": [name, keys.cpu(), *rest],
    }  # fmt: skip


def check_same(checkpoint: Checkpoint, settings: TrainSettings, processes: int, model: str) -> None:
    """UserError names the first setting that a training cannot change on its way. `model`: fingerprint of the weights
    that are there now."""
    if len(checkpoint.generators) != processes:
        raise UserError(
            f"this training was begun by {len(checkpoint.generators)} processes, now there are {processes}; launch as "
            "many as before"
        )
    old, new = checkpoint.settings.model_dump(mode="json"), settings.model_dump(mode="json")
    for name, before, now in differences(old, new):
        together = not (old["overlap"]["max_lag"] or new["overlap"]["max_lag"])
        if name not in FREE and name.partition(".")[0] not in FREE and not (name == _THREAD and together):
            raise UserError(
                f"this training was begun with {name} = {json.dumps(before)}, now it is {json.dumps(now)}; begin "
                "another one in a new folder, or set it back"
            )
    moved = checkpoint.settings.model.path != settings.model.path
    if model != checkpoint.model and (moved or checkpoint.model is not None):
        raise UserError(
            f"{settings.model.path} holds other weights than those that this training was begun with (model.path = "
            f"{json.dumps(str(checkpoint.settings.model.path))}); name these, or begin another one in a new folder"
        )


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Name, old and new value of each setting that differs; names have dots within tables."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield name, old, new
        return
    for key in dict.fromkeys([*old, *new]):
        yield from differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
