"""Where a local model lies and how it is asked: `PATH[?NAME=VALUE&...]`, checked before anything heavy is imported."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from warpsmith.agents.llm.endpoint import IN_PROCESS, Endpoint
from warpsmith.kernels.errors import UserError

Code = Literal["auto", "on", "off"]

OPTIONS = "temperature, why, code, lines, device, dtype"
DTYPES = ("bfloat16", "float16", "float32")
MAGIC = b"GGUF"

WRITES_FROM = 1_000_000_000
"""Parameters from which a model is asked to write code, unless it is told."""

_CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
_WEIGHTS = ("*.safetensors", "*.bin")
_SAMPLED = 1 << 16
"""Bytes at both ends of a weight file that stand for its content."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a local model is asked."""

    temperature: float = 1.0
    why: int = 24
    """Tokens that a free text may have at most."""
    code: Code = "auto"
    """Whether it writes code; `auto`: from a thousand million parameters on."""
    lines: int = 1024
    """Tokens that a block of code may have at most."""
    device: str = "auto"
    dtype: str = "bfloat16"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on the disk."""

    folder: Path
    gguf: str | None
    """Name of the GGUF file in the folder; None: the folder itself is the model."""

    @property
    def name(self) -> str:
        """For people: the file or folder without what leads to it."""
        return self.gguf or self.folder.resolve().name

    @property
    def weights(self) -> list[Path]:
        """The files that hold the weights."""
        if self.gguf is not None:
            return [self.folder / self.gguf]
        for pattern in _WEIGHTS:
            found = sorted(self.folder.glob(pattern))
            if found:
                return found
        return []

    def parameters(self) -> int | None:
        """How many the weights hold, by the headers of their files; None where those do not say."""
        if any(path.suffix != ".safetensors" for path in self.weights):
            return None
        return sum(_in_safetensors(path) for path in self.weights)

    def endpoint(self) -> Endpoint:
        """What stands for a server in records: the content, so that kept replies outlive a move of the model."""
        return Endpoint(f"{IN_PROCESS}{self._fingerprint()}", self.name)

    def _fingerprint(self) -> str:
        """Of the configuration, the tokenizer, and size and both ends of each weight file."""
        digest = hashlib.sha256()
        small = [] if self.gguf else [self.folder / name for name in ("config.json", *_TOKENIZERS)]
        for path in small:
            if path.is_file():
                digest.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
        for path in self.weights:
            size = path.stat().st_size
            with path.open("rb") as file:
                digest.update(f"{path.name}\0{size}\0".encode() + file.read(_SAMPLED))
                file.seek(max(size - _SAMPLED, 0))
                digest.update(file.read(_SAMPLED))
        return digest.hexdigest()[:16]


def _in_safetensors(path: Path) -> int:
    """Numbers in a file: its header, behind its length in eight bytes, holds the shapes."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def parse(text: str) -> tuple[Path, Settings]:
    """Path and settings of what stands behind `local:`. UserError says how it is written."""
    path, _, options = text.partition("?")
    if not path.strip():
        raise UserError("--policy local: names no model: write local:FOLDER or local:FILE.gguf")
    given: dict[str, Any] = {}
    for part in options.split("&") if options else ():
        name, equals, value = part.partition("=")
        if not equals or name in given:
            raise _wrong(part, f"write {OPTIONS} as NAME=VALUE, each once")
        given[name] = _value(part, name, value)
    return Path(path).expanduser(), Settings(**given)


def _value(part: str, name: str, value: str) -> Any:
    try:
        if name == "temperature" and 0 < float(value) <= 10:
            return float(value)
        if name in ("why", "lines") and 0 <= int(value) <= 100_000:
            return int(value)
    except ValueError:
        pass
    if name == "code" and value in ("auto", "on", "off"):
        return value
    if name == "dtype" and value in DTYPES:
        return value
    if name == "device" and (value in ("auto", "cpu", "cuda") or value.removeprefix("cuda:").isdecimal()):
        return value
    raise _wrong(
        part,
        "there are temperature=T (above 0), why=TOKENS, lines=TOKENS, code=auto|on|off, device=auto|cpu|cuda:N and "
        f"dtype={'|'.join(DTYPES)}",
    )


def _wrong(part: str, words: str) -> UserError:
    return UserError(f"--policy local: option {part!r} is not known: {words}")


def find_model(path: Path) -> ModelFiles:
    """The model's files. UserError: nothing there, no model, not a causal one, or a package is missing."""
    if not path.exists():
        raise _refused(path, "there is no such file or folder; give a folder with config.json, or a GGUF file")
    if path.is_file():
        files = ModelFiles(path.parent, path.name)
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise _refused(path, "the file is no GGUF; give the folder that holds config.json, or a GGUF file")
    else:
        files = _folder(path)
    _require_packages(path, files)
    return files


def _folder(path: Path) -> ModelFiles:
    if not (path / "config.json").is_file():
        found = sorted(file.name for file in path.glob("*.gguf"))
        if len(found) == 1:
            return ModelFiles(path, found[0])
        what = f"it holds {', '.join(found)}: name one of them" if found else "it has no config.json and no GGUF file"
        raise _refused(path, f"{what}; a Hugging Face folder is made by save_pretrained, or downloaded whole")
    try:
        config = json.loads((path / "config.json").read_text())
    except ValueError as error:
        raise _refused(path, f"its config.json is no JSON ({error})") from None
    kinds = config.get("architectures") if isinstance(config, dict) else None
    if kinds and not any(str(kind).endswith(_CAUSAL) for kind in kinds):
        raise _refused(path, f"it is {', '.join(map(str, kinds))}, not a causal language model")
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise _refused(path, "it has no tokenizer; copy tokenizer.json and tokenizer_config.json into it")
    files = ModelFiles(path, None)
    if not files.weights:
        raise _refused(path, "it has no weights (*.safetensors or *.bin)")
    return files


def _require_packages(path: Path, files: ModelFiles) -> None:
    wanted = ("transformers", "gguf", "accelerate") if files.gguf else ("transformers",)
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise _refused(path, f"{' and '.join(missing)} must be installed for it: pip install 'warpsmith[local]'")


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"--policy local:{path}: {why}")
