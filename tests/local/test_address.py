"""`local:PATH`: what is wrong with a path or an option is said before anything is loaded, with exit code 2."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from local.conftest import EXACT
from support.command import command

from warpsmith.agents.chat.grammar import ModelAddress
from warpsmith.agents.local.address import Settings, find_model, parse
from warpsmith.agents.local.model import load
from warpsmith.agents.registry import crew_of, size_in, writes_kernels
from warpsmith.kernels.errors import UserError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "softmax.py"


def refused(text: str) -> str:
    with pytest.raises(UserError) as raised:
        crew_of(text)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_a_path_may_have_options_and_roles_models_of_their_own(folder: Path) -> None:
    crew = crew_of(f"local:{folder}?temperature=0.7&code=on&device=cuda:1;writer=gpt-5")
    assert crew is not None
    assert crew.own["writer"] == (ModelAddress("gpt-5"),)
    (address,) = crew.models
    assert address.local
    path, settings = parse(address.model)
    assert (path, settings) == (folder, Settings(temperature=0.7, code="on", device="cuda:1"))
    mixed = crew_of(f"chat:gpt-5;memory=local:{folder}")
    assert mixed is not None
    assert str(mixed.own["memory"][0]) == f"local:{folder}"


@pytest.mark.parametrize("option", ["heat=1", "temperature=0", "temperature=hot", "code=maybe", "why=-1", "device=tpu"])
def test_options_that_are_not_known(folder: Path, option: str) -> None:
    assert "temperature=T" in refused(f"local:{folder}?{option}")


def test_paths_that_hold_no_model(folder: Path, tmp_path: Path) -> None:
    assert "names no model" in refused("local:")
    assert "no such file or folder" in refused(f"local:{tmp_path / 'nothing'}")
    assert "no config.json" in refused(f"local:{tmp_path}")
    (tmp_path / "a.txt").write_text("words")
    assert "no GGUF" in refused(f"local:{tmp_path / 'a.txt'}")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "tokenizer.json").unlink()
    (copy / "tokenizer_config.json").unlink()
    assert "no tokenizer" in refused(f"local:{copy}")
    shutil.copy(folder / "tokenizer.json", copy)
    (copy / "model.safetensors").unlink()
    assert "no weights" in refused(f"local:{copy}")
    (copy / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    assert "not a causal language model" in refused(f"local:{copy}")
    (copy / "config.json").write_text("{")
    assert "no JSON" in refused(f"local:{copy}")


def test_packages_that_are_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "pip install 'warpsmith[local]'" in refused(f"local:{folder}")


def test_files_that_transformers_cannot_read(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.safetensors").write_bytes(b"broken")
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\0" * 64)
    for path in (copy, tmp_path / "x.gguf"):
        with pytest.raises(UserError, match="cannot load it"):
            load(find_model(path), EXACT)
    with pytest.raises(UserError, match="device=cpu"):
        load(find_model(folder), Settings(device="cuda:97"))


def test_kept_replies_outlive_a_move_of_the_model(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / folder.name))
    assert find_model(copy).endpoint() == find_model(folder).endpoint()
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"rope_theta": 5.0}))
    assert find_model(copy).endpoint() != find_model(folder).endpoint()


def test_the_command_says_so(tmp_path: Path) -> None:
    done = command("optimize", EXAMPLE, "--policy", f"local:{tmp_path / 'nothing'}", cwd=tmp_path)
    assert done.returncode == 2
    assert "no such file or folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_small_model_is_not_asked_for_whole_kernels_unless_it_is_told(folder: Path) -> None:
    parameters = find_model(folder).parameters()
    assert parameters == load(find_model(folder), EXACT, "tiny").parameters
    assert not writes_kernels(crew_of(f"local:{folder}"))
    assert writes_kernels(crew_of(f"local:{folder}?code=on"))
    assert writes_kernels(crew_of(f"local:{folder};writer=gpt-5"))
    assert not writes_kernels(crew_of(f"chat:gpt-5;writer=local:{folder}"))
    assert not writes_kernels(crew_of("builtin"))


@pytest.mark.parametrize(
    ("name", "size"),
    [("SmolLM2-135M-Instruct", 135e6), ("qwen2.5-coder:7b", 7e9), ("Qwen/Qwen3-0.6B", 0.6e9), ("gpt-5", None),
     ("phi-3-mini-128k", None), ("mixtral-8x7b", None), ("llama-3.2-1b-q4", 1e9), ("m3b", None), ("v2.5", None)],
)  # fmt: skip
def test_the_size_that_a_name_tells(name: str, size: float | None) -> None:
    assert size_in(name) == size


def test_a_small_model_of_a_server_writes_no_kernels_unless_it_is_named_the_writer() -> None:
    where = "@http://127.0.0.1:1"
    assert writes_kernels(crew_of(f"chat:gpt-5{where}"))
    assert writes_kernels(crew_of(f"chat:llama:8b{where}"))
    assert not writes_kernels(crew_of(f"chat:smollm2-135m{where}"))
    assert writes_kernels(crew_of(f"chat:smollm2-135m{where},gpt-5"))
    assert writes_kernels(crew_of(f"chat:smollm2-135m{where};writer=smollm2-135m{where}"))
