"""The model that is trained: a causal language model with adapters or all its weights, and its versions on the disk."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warpsmith.agents.local.address import ModelFiles, Settings, find_model
from warpsmith.agents.local.decisions import Decisions
from warpsmith.agents.local.model import LocalModel, load, quietly
from warpsmith.kernels.errors import UserError
from warpsmith.rl.train.logprobs import Head, Part, cache_fits, decision_logprobs, packed
from warpsmith.rl.train.settings import LoraSettings, ModelSettings

VERSION_FILE = "warpsmith.json"
"""Beside the weights: of which model they are, and which version."""


class Policy:
    """A model with weights that are trained. Not thread-safe; `twin` makes one for another thread."""

    def __init__(self, whole: Any, local: LocalModel, files: ModelFiles, settings: ModelSettings) -> None:
        self._whole = whole
        """With adapters: peft's model around `local.model`; else the same."""
        self.local = local
        self.settings = settings
        self._files = files
        self.version = 0
        self._head = Head(local.model)
        # Checkpointing has no use for a cache.
        self._shares = not settings.gradient_checkpointing and cache_fits(local.model, local.cache_name)
        self._reference: dict[str, Tensor] | None = None
        self.set_version(0)

    @property
    def has_adapter(self) -> bool:
        """Whether adapters are trained, not the weights themselves."""
        return self._whole is not self.local.model

    @property
    def device(self) -> Any:
        """Of the model."""
        return self.local.model.device

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """The weights that are trained, by name."""
        return {name: one for name, one in self.local.model.named_parameters() if one.requires_grad}

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the trained weights, on their device."""
        return {name: one.detach().clone() for name, one in self.trained().items()}

    def restore(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Takes trained weights over. ValueError where they are of another shape of training."""
        own = self.trained()
        if own.keys() != weights.keys():
            raise ValueError(f"{len(own.keys() ^ weights.keys())} trained weights have other names")
        with torch.no_grad():
            for name, one in own.items():
                one.copy_(weights[name])
        self.set_version(version)

    def set_version(self, version: int) -> None:
        """Says that the weights are of this version: in the decisions, and to whoever kept what an older one read."""
        self.version = version
        self.local.version = f"{self._files.endpoint().base_url}@{version}"
        self.local.forget()

    def twin(self) -> Policy:
        """Another policy with the same weights; what is not trained is shared, not copied."""
        shared: dict[int, Any] = {id(one): one for one in self.local.model.parameters() if not one.requires_grad}
        whole = copy.deepcopy(self._whole, shared)
        model = whole.get_base_model() if self.has_adapter else whole
        # A tokenizer is not safe in two threads, for it keeps settings between calls.
        twin = Policy(whole, LocalModel(model, copy.deepcopy(self.local.tokenizer)), self._files, self.settings)
        twin.set_version(self.version)
        return twin

    def train_mode(self) -> None:
        """For updates. Dropout stays off: a ratio compares the same function at other weights."""
        if not self.settings.gradient_checkpointing:
            return
        # transformers checkpoints in training mode only.
        self.local.model.train()
        for module in self.local.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()
            if isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = 0.0

    def sample_mode(self) -> None:
        """For sampling."""
        self.local.model.eval()

    def logprobs(self, part: Part) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of the decisions, with gradients where they are enabled."""
        with self.autocast():
            return decision_logprobs(
                self.local.model, self._head, part, cache_name=self.local.cache_name,
                share_prompts=self._shares,
            )  # fmt: skip

    def scored(self, replies: Sequence[Decisions], micro_batch: int = 16) -> list[Tensor]:
        """Log-probabilities of the decisions of each reply, without gradients."""
        found: list[Tensor] = []
        with torch.no_grad():
            for start in range(0, len(replies), micro_batch):
                some = replies[start : start + micro_batch]
                part = packed(some, self.device)
                logprobs, _ = self.logprobs(part)
                found += [row[mask > 0] for row, mask in zip(logprobs.cpu(), part.mask.cpu(), strict=True)]
        return found

    @contextlib.contextmanager
    def reference(self) -> Iterator[None]:
        """Within it the model is what it was before training: adapters are off, or the first weights in place."""
        if self.has_adapter:
            with self._whole.disable_adapter():
                yield
            return
        if self._reference is None:
            raise RuntimeError("keep_reference was not called before training")
        current = self.snapshot()
        version = self.version
        self.restore(self._reference, version)
        try:
            yield
        finally:
            self.restore(current, version)

    def keep_reference(self) -> None:
        """Makes the weights as they are the reference. Adapters need none."""
        if not self.has_adapter:
            self._reference = self.snapshot()

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """bfloat16 products, where the settings say so."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.settings.autocast):
            yield

    @property
    def origin(self) -> str:
        """Fingerprint of the weights that training began from."""
        return self._files.endpoint().base_url

    def save(self, folder: Path) -> None:
        """Writes the adapter in PEFT's format, or the whole model in transformers', never merged. The folder appears
        whole or not at all; one that is there is replaced."""
        with replaced(folder) as fresh:
            with quietly():
                if self.has_adapter:
                    # "auto" looks the base model up on the network.
                    self._whole.save_pretrained(fresh, save_embedding_layers=False)
                else:
                    self._whole.save_pretrained(fresh)
                    self.local.tokenizer.save_pretrained(fresh)
            told = {"schema_version": 1, "model": self.origin, "version": self.version}
            (fresh / VERSION_FILE).write_text(json.dumps(told) + "\n")


def load_policy(settings: ModelSettings) -> Policy:
    """Reads a model, and the adapter to start from where one is named. UserError names what is wrong."""
    require_peft(settings)
    files = find_model(settings.path)
    dtype = settings.dtype if settings.lora is not None else "float32"
    local = load(files, Settings(dtype=dtype, device=settings.device))
    local.model.config.use_cache = True
    if settings.gradient_checkpointing:
        _checkpoint_activations(local.model)
    if settings.lora is None:
        if settings.adapter is not None:
            raise UserError(
                "model.adapter: adapters belong to [model.lora]; give the folder of the weights as model.path"
            )
        local.model.requires_grad_(True)
        return Policy(local.model, local, files, settings)
    whole = _with_adapter(local.model, files, settings)
    local.model.requires_grad_(False)
    for name, one in local.model.named_parameters():
        if "lora_" in name:
            one.requires_grad_(True)
    return Policy(whole, LocalModel(whole.get_base_model(), local.tokenizer), files, settings)


def _checkpoint_activations(model: Any) -> None:
    """By whichever name this version of transformers has for it."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _with_adapter(model: Any, files: ModelFiles, settings: ModelSettings) -> Any:
    """peft's model. UserError: the adapter is of another model, or the targets name no layer."""
    import peft

    lora = settings.lora
    assert lora is not None
    try:
        with warnings.catch_warnings():
            # peft reads a name that transformers is about to drop, and tells that it knows transposed layers.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
            warnings.filterwarnings("ignore", "fan_in_fan_out", UserWarning)
            return _adapted(peft, model, files, settings, lora)
    except (ValueError, OSError, KeyError) as error:
        raise UserError(f"[model.lora]: {' '.join(str(error).split())[:300]}") from error


def _adapted(peft: Any, model: Any, files: ModelFiles, settings: ModelSettings, lora: LoraSettings) -> Any:
    if settings.adapter is not None:
        _check_adapter(settings.adapter, files)
        return peft.PeftModel.from_pretrained(model, str(settings.adapter), is_trainable=True)
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    config = peft.LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM")
    whole = peft.get_peft_model(model, config)
    # What others load the adapter onto is theirs to name; a path of this machine tells them nothing.
    whole.peft_config["default"].base_model_name_or_path = files.name
    return whole


def _check_adapter(folder: Path, files: ModelFiles) -> None:
    if not (folder / "adapter_config.json").is_file():
        raise UserError(f"model.adapter: {folder} holds no adapter_config.json; give a folder that training wrote")
    told = folder / VERSION_FILE
    if told.is_file():
        model = json.loads(told.read_text()).get("model")
        if model != files.endpoint().base_url:
            raise UserError(f"model.adapter: {folder} was trained on other weights than model.path has")


def require_peft(settings: ModelSettings) -> None:
    """UserError where a package is missing."""
    import importlib.util

    if settings.lora is not None and importlib.util.find_spec("peft") is None:
        raise UserError("training adapters needs peft: pip install 'warpsmith[train]'")


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `folder` when the block ends without an exception."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield fresh
        for path in [*fresh.rglob("*"), fresh]:
            _sync(path)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            folder.replace(old)
            fresh.replace(folder)
            shutil.rmtree(old)
        else:
            fresh.replace(folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    """Forces a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
