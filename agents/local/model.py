"""A causal language model of transformers in this process: loading, prompts, and logits position by position."""

from __future__ import annotations

import contextlib
import inspect
import io
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.llm.records import Message
from warpsmith.agents.local.address import ModelFiles, Settings
from warpsmith.agents.local.tokens import TokenSet, Vocabulary
from warpsmith.kernels.errors import UserError

_QUIET = threading.RLock()

_SPARE_BYTES = 1 << 30
"""Of GPU memory beside the weights: context, kept prompt and activations."""
_UNPACKED = 4
"""A GGUF file's bytes are taken times this, once its weights are no longer packed."""


class LocalModel:
    """A loaded model with its tokenizer. Not thread-safe: one session at a time."""

    def __init__(self, model: Any, tokenizer: Any, version: str = "") -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.version = version
        """What `Decisions.model` says."""
        config = model.config.get_text_config()
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self.vocabulary = Vocabulary(tokenizer, int(config.vocab_size))
        takes = set(inspect.signature(model.forward).parameters)
        self.cache_name = "cache" if "cache" in takes else "past_key_values"
        self.keeps_last = "logits_to_keep" in takes
        self._kept: _Kept | None = None

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(int(one.numel()) for one in self.model.parameters())

    @property
    def device(self) -> str:
        """As torch writes it."""
        return str(self.model.device)

    @property
    def dtype(self) -> str:
        """Of the weights: `bfloat16`, ..."""
        return str(self.model.dtype).removeprefix("torch.")

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a chat up to where the reply begins, by the model's own template where it has one."""
        told = [{"role": message.role, "content": message.content} for message in messages]
        if not getattr(self.tokenizer, "chat_template", None):
            text = "\n\n".join(one["content"] for one in told) + "\n\n"
            return list(self.tokenizer.encode(text))
        try:
            text = self._templated(told)
        except Exception as error:
            if "system" not in str(error).lower() or len(told) < 2 or told[0]["role"] != "system":
                raise
            merged = {"role": told[1]["role"], "content": f"{told[0]['content']}\n\n{told[1]['content']}"}
            text = self._templated([merged, *told[2:]])
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _templated(self, told: list[dict[str, str]]) -> str:
        return str(self.tokenizer.apply_chat_template(told, add_generation_prompt=True, tokenize=False))

    def session(self, prompt_ids: Sequence[int]) -> Session:
        """A reply to be written behind the prompt. The keys and values of the same prompt are used again: they are
        what reading it anew would give, whatever was asked in between."""
        ids = tuple(prompt_ids)
        if self._kept is not None and self._kept.prompt == ids:
            surplus = self._kept.cache.get_seq_length() - len(ids)
            if surplus:
                self._kept.cache.crop(-surplus)
            return Session(self, self._kept.cache, reused=len(ids))
        self._kept = None
        _, cache = self.forward(ids, None)
        if cache is not None and all(type(layer).__name__ == "DynamicLayer" for layer in getattr(cache, "layers", [0])):
            self._kept = _Kept(ids, cache)
        return Session(self, cache, reused=0)

    def forward(self, ids: Sequence[int], cache: Any, keep: int = 1) -> tuple[Any, Any]:
        """Float32 logits of the last `keep` positions, [keep, vocabulary], and the cache with these tokens."""
        import torch

        more: dict[str, Any] = {"logits_to_keep": keep} if self.keeps_last else {}
        if cache is not None:
            more[self.cache_name] = cache
        with torch.inference_mode():
            tokens = torch.tensor([list(ids)], device=self.model.device)
            out = self.model(input_ids=tokens, use_cache=True, **more)
            return out.logits[0, -keep:].float(), getattr(out, self.cache_name)

    def forward_rows(self, tokens: Any, mask: Any, positions: Any, cache: Any) -> tuple[Any, Any]:
        """Float32 logits of each row's last token, [rows, vocabulary], and the cache with these tokens. `tokens` and
        `positions`: [rows, n]; `mask`: [rows, cached + n], 0 where a row has a gap."""
        import torch

        more: dict[str, Any] = {"logits_to_keep": 1} if self.keeps_last else {}
        if cache is not None:
            more[self.cache_name] = cache
        with torch.inference_mode():
            out = self.model(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=True, **more)
            return out.logits[:, -1].float(), getattr(out, self.cache_name)

    def forget(self) -> None:
        """The weights were changed: what was read of a prompt holds no longer."""
        self._kept = None


@dataclass(frozen=True, slots=True)
class _Kept:
    prompt: tuple[int, ...]
    cache: Any


class Session:
    """One reply under way."""

    def __init__(self, model: LocalModel, cache: Any, reused: int) -> None:
        self._model = model
        self._cache = cache
        self.reused = reused
        """Tokens of the prompt that were not read again."""

    def logprobs(self, ids: Sequence[int], allowed: TokenSet, temperature: float) -> NDArray[np.float64]:
        """Log-probabilities of the allowed tokens behind the written ones and `ids`, over the allowed tokens alone."""
        logits, self._cache = self._model.forward(ids, self._cache)
        return renormalised(logits[-1], allowed, temperature)


def renormalised(logits: Any, allowed: TokenSet, temperature: float) -> NDArray[np.float64]:
    """From the logits of one position, [vocabulary]."""
    chosen = logits[allowed.tensor(logits.device)].cpu().numpy().astype(np.float64) / temperature
    shifted = chosen - chosen.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def load(files: ModelFiles, settings: Settings, version: str = "") -> LocalModel:
    """Reads a model. UserError where transformers cannot, with its reason."""
    import torch
    import transformers

    device = pick_device(settings.device, files)
    known: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if files.gguf is not None:
        known["gguf_file"] = files.gguf
    try:
        with quietly():
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(files.folder), **known)
            if files.gguf is not None and hasattr(transformers, "GgufConfig"):
                # Packed weights are unpacked again in every product: slow, and no gradient passes.
                known["quantization_config"] = transformers.GgufConfig(dequantize=True)
            model: Any = transformers.AutoModelForCausalLM.from_pretrained(
                str(files.folder), dtype=getattr(torch, settings.dtype), **known
            )
        return LocalModel(model.to(device), tokenizer, version)
    except torch.OutOfMemoryError as error:
        raise UserError(f"--policy local:{files.name}: no room on {device}; add ?device=cpu ({error})") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(
            f"--policy local:{files.name}: transformers {transformers.__version__} cannot load it as a causal "
            f"language model: {reason}"
        ) from error


def pick_device(wanted: str, files: ModelFiles) -> str:
    """`auto`: the last GPU with room for the model, for the judge takes the first; else the CPU. UserError for a GPU
    that is not there."""
    import torch

    if wanted == "cpu":
        return "cpu"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        size = sum(path.stat().st_size for path in files.weights)
        needed = size * (_UNPACKED if files.gguf is not None else 1) + _SPARE_BYTES
        for index in reversed(range(count)):
            if torch.cuda.mem_get_info(index)[0] >= needed:
                return f"cuda:{index}"
        return "cpu"
    index = int(wanted.partition(":")[2] or 0)
    if index >= count:
        there = f"there are {count} GPUs" if count else "torch sees no GPU"
        raise UserError(f"--policy local: device={wanted}: {there}; write device=cpu or device=auto")
    return f"cuda:{index}"


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without progress bars and remarks: the errors are raised. One thread at a time: standard error is everyone's."""
    from transformers.utils import logging

    quiet: Any = logging.set_verbosity_error
    with _QUIET:
        before = logging.get_verbosity()
        quiet()
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            logging.set_verbosity(before)
