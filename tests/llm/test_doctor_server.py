"""`doctor --server` and the scripted server by hand: what is found out, printed, kept."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from llm.kit import KEY, Desk
from support.command import command

from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.profile import Profiles
from warpsmith.agents.llm.scripted import Dialect, Fault
from warpsmith.app.doctor_server import examine

FOUND = {
    "openai": {"schema_": "enforced", "tool": "enforced", "object_": "json", "object_schema": False, "parallel": True},
    "reasoning": {"schema_": "enforced", "temperature": False, "room": "max_completion_tokens", "logprobs": False},
    "llama-cpp": {"schema_": "rejected", "tool": "ignored", "object_": "enforced", "object_schema": True,
                  "stream_usage": False, "parallel": False},
    "vllm": {"schema_": "enforced", "schema_dialect": "structured_outputs", "tool": "rejected"},
    "ignores": {"schema_": "ignored", "tool": "ignored", "object_": "ignored", "stream_usage": True},
    "rejects": {"schema_": "rejected", "tool": "rejected", "object_": "rejected", "logprobs": True},
}  # fmt: skip


@pytest.mark.parametrize("dialect", sorted(FOUND))
def test_a_probe_finds_the_dialect_and_keeps_it(desk: Callable[..., Desk], tmp_path: Path, dialect: str) -> None:
    at = desk(dialect=dialect, context=4096)
    profiles = Profiles(tmp_path)
    checks, profile, note = examine(at.server.base_url, None, quiet=True, profiles=profiles)
    assert {name: getattr(profile, name) for name in FOUND[dialect]} == FOUND[dialect]
    assert (profile.model, profile.context, profile.served) == ("scripted", 4096, ("scripted",))
    assert not [check for check in checks if check.state == "fail"]
    assert profiles.find(endpoint("scripted", at.server.base_url, {})) == profile
    assert re.match(r"\d+ requests, \d+ tokens", note)


def test_a_model_that_thinks_is_found(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(faults=[Fault("think_tags")])
    _, profile, _ = examine(at.server.base_url, "scripted", quiet=True, profiles=Profiles(tmp_path))
    assert profile.thinks
    assert profile.schema_ == "enforced"


def test_a_server_that_does_not_answer_questions(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(faults=[Fault("web_page")])
    checks, profile, _ = examine(at.server.base_url, "scripted", quiet=True, profiles=Profiles(tmp_path))
    assert profile is None
    assert [check.state for check in checks] == ["ok", "fail"]
    assert "failed with 502" in checks[-1].detail


def test_the_command_prints_and_keeps_what_it_found(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(dialect=Dialect(json_schema=500, object_schema="enforced"))
    done = command("doctor", "--server", at.server.base_url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^warn +json_schema +rejected$", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +forms used +tool, then object, then text$", done.stdout, re.MULTILINE)
    assert len(list((tmp_path / "cache" / "servers").glob("*.json"))) == 1


def test_the_command_in_json_with_a_key(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(key=KEY)
    words = [sys.executable, "-P", "-m", "warpsmith", "doctor", "--server", at.server.base_url, "--json"]
    surroundings = os.environ | {"WARPSMITH_CACHE": str(tmp_path)}
    told = subprocess.run(words, capture_output=True, text=True, env=surroundings, check=False)
    assert told.returncode == 4
    assert "no key was sent" in json.loads(told.stdout)["checks"][0]["detail"]
    told = subprocess.run(
        words, capture_output=True, text=True, env=surroundings | {"WARPSMITH_API_KEY": KEY}, check=False
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["profile"]["schema_"] == "enforced"
    assert KEY not in told.stdout + told.stderr
    assert not [path for path in tmp_path.rglob("*.json") if KEY in path.read_text()]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--server", "http://127.0.0.1:9"), 4, "is the server running?"),
        (("--server", "nowhere"), 2, "is not a server's address"),
    ],
)
def test_servers_that_are_not_there(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = command("doctor", *words, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_model_is_answered_with_those_there_are(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk()
    checks, profile, _ = examine(at.server.base_url, "gpt-99", quiet=True, profiles=Profiles(tmp_path))
    assert profile is None
    assert "no model 'gpt-99'" in checks[-1].detail
    assert checks[-1].remedy == "it serves scripted"


def test_the_scripted_server_by_hand() -> None:
    words = [sys.executable, "-P", "-m", "warpsmith.agents.llm.scripted", "--fault", "no_json@1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        url = line.split()[0]
        _, profile, _ = examine(url, "scripted", quiet=True, profiles=Profiles(Path("/nonexistent/folder")))
        server.send_signal(signal.SIGTERM)
        rest = server.stdout.read()
    assert profile.schema_ == "enforced"
    assert re.search(r"^\d+ requests$", rest.strip())
    assert server.returncode == 0
    bad = subprocess.run([*words[:-1], "no_such"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "truncated" in bad.stderr
