"""Tokens per second of sampling and of updates, beside TRL's trainer at the same settings.

benchmarks/train_throughput.py --tiny                                   a random model of no size: does it run at all?
benchmarks/train_throughput.py --model FOLDER --groups 8 --group-size 16 --prompt 415 --dtype bfloat16 --json out.json

Both have the same weights, adapters, prompts and number of tokens a reply, and learn from the same replies with the
same loss (dapo, no divergence) and optimizer. TRL samples with transformers' `generate` (no vLLM), without a grammar
and with exactly as many tokens as the reply has on average; its update is its own loss, backward pass, clipping and
AdamW, without what its Trainer adds around them. A token counts once for each reply that it belongs to, prompts too,
whoever reads them how often.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from warpsmith.agents.llm.records import Message
from warpsmith.agents.local.decisions import Decisions
from warpsmith.rl.train.sampler import LiveTasks
from warpsmith.rl.train.settings import LoraSettings, LossSection, ModelSettings, SamplingSettings, TrainSettings
from warpsmith.rl.train.task import Batch, Sample, Scored
from warpsmith.rl.train.trainer import Trainer

WORDS = "The kernel reads each row once and keeps the sums of its columns in registers. "
RATE = 1e-4


@dataclass(frozen=True)
class Filler:
    """A prompt of so many tokens, and a reply with so many slots."""

    number: int
    text: str
    slots: int

    @property
    def name(self) -> str:
        """By its number."""
        return f"task{self.number}"

    @property
    def messages(self) -> Sequence[Message]:
        """One, and different from those of other tasks at its beginning."""
        return (Message(role="user", content=f"{self.name} {self.text}"),)

    @property
    def schema(self) -> dict[str, Any]:
        """Four values a slot."""
        values = [64, 128, 256, 512]
        return {"type": "object", "properties": {f"slot{i}": {"enum": values} for i in range(self.slots)}}

    @property
    def code(self) -> tuple[str, ...]:
        """None."""
        return ()

    def score(self, replies: Sequence[str]) -> Sequence[Scored]:
        """By position: never all equal."""
        return [Scored(float(at)) for at, _ in enumerate(replies)]


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, help="a folder as save_pretrained makes it, or a GGUF file")
    parser.add_argument("--tiny", action="store_true", help="a random model of no size")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--slots", type=int, default=5)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--rank", type=int, default=16, help="of the adapters")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of the frozen weights")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 products in both trainers")
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing in both trainers")
    parser.add_argument("--repeat", type=int, default=5, help="times that count, after one that does not")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--without-trl", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def tiny(folder: Path) -> Path:
    """The random model of the tests."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from local.tiny import tiny_model

    return tiny_model(folder, pad_token_id=0)


def settings_of(arguments: argparse.Namespace, model: Path) -> TrainSettings:
    """The same for both."""
    return TrainSettings(
        model=ModelSettings(
            path=model, device=arguments.device, dtype=arguments.dtype, autocast=arguments.autocast,
            gradient_checkpointing=arguments.checkpointing,
            lora=LoraSettings(rank=arguments.rank, alpha=2.0 * arguments.rank),
        ),
        micro_batch=arguments.micro_batch, learning_rate=RATE, max_grad_norm=1.0, loss=LossSection(name="dapo"),
        sampling=SamplingSettings(group_size=arguments.group_size, tasks=arguments.groups),
    )  # fmt: skip


def timed(work: Callable[[], Any], device: Any, repeat: int) -> dict[str, float]:
    """Seconds: median, least and most, and the peak of GPU memory in GiB, of `repeat` times after one that warms up."""
    work()
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(repeat):
        if cuda:
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        work()
        if cuda:
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if cuda else float("nan")
    return {"median_s": statistics.median(seconds), "least_s": min(seconds), "most_s": max(seconds), "peak_gib": peak}


def spread(batch: Batch) -> Batch:
    """With an advantage for every sample, so that none is left out."""
    samples = [
        one.model_copy(update={"advantage": 1.0 if at % 2 else -1.0}) for at, one in enumerate(batch.samples)
    ]  # fmt: skip
    return batch.model_copy(update={"samples": tuple(samples)})


def ours(settings: TrainSettings, tasks: Sequence[Filler], repeat: int, folder: Path) -> tuple[dict[str, Any], Batch]:
    """Figures of this package, and the batch that both learn from."""
    source = LiveTasks(tasks, settings.sampling, lambda scored: [0.0] * len(scored), 0)
    trainer = Trainer(settings, source, folder)
    policy = trainer.policy
    try:
        sampling = timed(lambda: source.batch(0, policy, lambda: None), policy.device, repeat)
        batch = spread(source.batch(0, policy, lambda: None))
        update = timed(lambda: trainer._update(batch), policy.device, repeat)
        # The figures of the update say how many tokens were read: prompts once for each part of the batch.
        read = trainer._update(batch)["tokens"]
    finally:
        trainer.close()
    return {"sampling": sampling, "update": update, "tokens_read": read}, batch


def theirs(settings: TrainSettings, batch: Batch, repeat: int, folder: Path) -> dict[str, Any]:
    """Figures of TRL's trainer."""
    import datasets
    import peft
    import trl

    from warpsmith.agents.local.address import Settings, find_model
    from warpsmith.agents.local.model import load

    model = settings.model
    local = load(find_model(model.path), Settings(dtype=model.dtype, device=model.device))
    made = [one.decisions for one in batch.samples]
    length = round(statistics.mean(len(one.completion_ids) for one in made))
    options = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=len(made), num_generations=settings.sampling.group_size,
        use_cpu=local.model.device.type == "cpu", bf16=model.autocast, report_to=[], loss_type="dapo",
        epsilon_high=0.28, max_completion_length=length, generation_kwargs={"min_new_tokens": length},
        gradient_checkpointing=model.gradient_checkpointing, learning_rate=RATE,
    )  # fmt: skip
    lora = model.lora
    assert lora is not None
    config = peft.LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer: Any = trl.GRPOTrainer(
        local.model, lambda **_: [0.0] * len(made), args=options, processing_class=local.tokenizer, peft_config=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": "x"}] * len(made)),
    )  # fmt: skip
    prompts = [list(one.prompt_ids) for one in made]
    sampled: list[Any] = []

    def sample() -> None:
        sampled[:] = trainer._generate_single_turn(prompts, None, {}, settings.sampling.group_size)[0]

    sampling = timed(sample, trainer.accelerator.device, repeat)
    if {len(one) for one in sampled} != {length}:
        raise SystemExit("TRL's replies have another length than was asked for")
    optimizer = torch.optim.AdamW([one for one in trainer.model.parameters() if one.requires_grad], lr=RATE)
    update = timed(
        lambda: their_update(trainer, optimizer, made, settings.micro_batch), trainer.accelerator.device, repeat
    )
    return {"sampling": sampling, "update": update, "length": length}


def their_update(trainer: Any, optimizer: torch.optim.Optimizer, made: Sequence[Decisions], micro_batch: int) -> None:
    """One step on the whole batch, in parts, by TRL's own loss."""
    trainer.model.train()
    optimizer.zero_grad(set_to_none=True)
    starts = range(0, len(made), micro_batch)
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = len(starts)
    device, pad = trainer.accelerator.device, trainer._tokenizer.pad_token_id
    total = torch.tensor(sum(len(one.completion_ids) for one in made), device=device)
    for start in starts:
        some = made[start : start + micro_batch]
        left = [torch.tensor(one.prompt_ids) for one in some]
        right = [torch.tensor(one.completion_ids) for one in some]
        pads = {"batch_first": True, "padding_value": pad}
        prompts = torch.nn.utils.rnn.pad_sequence(left, padding_side="left", **pads)
        completions = torch.nn.utils.rnn.pad_sequence(right, **pads)
        lengths = [torch.tensor([len(one) for one in side])[:, None] for side in (left, right)]
        inputs = {
            "prompt_ids": prompts, "prompt_mask": (torch.arange(prompts.shape[1]).flip(0) < lengths[0]).int(),
            "completion_ids": completions, "completion_mask": (torch.arange(completions.shape[1]) < lengths[1]).int(),
            "advantages": torch.tensor([1.0 if (start + at) % 2 else -1.0 for at in range(len(some))]),
        }  # fmt: skip
        inputs = {name: one.to(device) for name, one in inputs.items()} | {"num_items_in_batch": total}
        with trainer.compute_loss_context_manager():
            loss = trainer._compute_loss(trainer.model, inputs)
        trainer.accelerator.backward(loss)
    torch.nn.utils.clip_grad_norm_([one for one in trainer.model.parameters() if one.requires_grad], 1.0)
    optimizer.step()


def rates(found: dict[str, Any], samples: Sequence[Sample], length: float) -> dict[str, Any]:
    """With tokens per second."""
    whole = sum(len(one.decisions.prompt_ids) + len(one.decisions.completion_ids) for one in samples)
    found["sampling"]["tokens_per_s"] = len(samples) * length / found["sampling"]["median_s"]
    found["update"]["tokens_per_s"] = whole / found["update"]["median_s"]
    return found


def main(words: list[str]) -> None:
    """Measures, prints a table, and writes the figures where they are wanted."""
    arguments = parsed(words)
    if arguments.tiny == (arguments.model is not None):
        raise SystemExit("write --model PATH or --tiny")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny(folder / "model") if arguments.tiny else arguments.model
        settings = settings_of(arguments, model)
        tasks = fillers(arguments, model)
        mine, batch = ours(settings, tasks, arguments.repeat, folder / "ours")
        length = statistics.mean(len(one.decisions.completion_ids) for one in batch.samples)
        figures = {"settings": vars(arguments), "machine": machine(), "tokens": tokens(batch)}
        figures["ours"] = rates(mine, batch.samples, length)
        if not arguments.without_trl:
            found = theirs(settings, batch, arguments.repeat, folder / "trl")
            figures["trl"] = rates(found, batch.samples, found["length"])
    for what in ("sampling", "update"):
        lines = {who: figures[who][what] for who in ("ours", "trl") if who in figures}
        for who, one in lines.items():
            peak = f", {one['peak_gib']:.1f} GiB" if one["peak_gib"] == one["peak_gib"] else ""
            print(f"{what:9} {who:5} {one['tokens_per_s']:10.0f} tokens/s, {one['median_s']:.3f} s{peak}")
        if len(lines) == 2:
            print(f"{what:9} ratio {lines['ours']['tokens_per_s'] / lines['trl']['tokens_per_s']:10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1, default=str) + "\n")


def fillers(arguments: argparse.Namespace, model: Path) -> list[Filler]:
    """Tasks whose prompts have about as many tokens as are wanted."""
    from warpsmith.agents.local.address import find_model

    files = find_model(model)
    import transformers

    more = {"gguf_file": files.gguf} if files.gguf else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(files.folder), **more)
    each = len(tokenizer.encode(WORDS, add_special_tokens=False))
    text = WORDS * max(round(arguments.prompt / each), 1)
    return [Filler(number, text, arguments.slots) for number in range(arguments.groups)]


def tokens(batch: Batch) -> dict[str, float]:
    """Of a reply, on average."""
    made = [one.decisions for one in batch.samples]
    return {
        "prompt": statistics.mean(len(one.prompt_ids) for one in made),
        "completion": statistics.mean(len(one.completion_ids) for one in made),
        "decisions": statistics.mean(one.forced.count(False) for one in made),
        "replies": len(made),
    }


def machine() -> dict[str, Any]:
    """Where it ran, and with what."""
    import importlib.metadata

    names = ("torch", "transformers", "peft", "trl")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "gpu": gpu,
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    } | versions


if __name__ == "__main__":
    main(sys.argv[1:])
