"""Sampling by a server: it answers with the version it was given, and what is learnt is what the policy says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train.conftest import moved
from train.test_logprobs import Wordy, written
from train.test_trainer import lines
from train.toy import LEGAL, ToyTask, settings

from warpsmith.agents.llm.records import Message
from warpsmith.agents.llm.scripted.players import Incoming, Turn
from warpsmith.agents.llm.scripted.server import Dialect, ScriptedServer
from warpsmith.agents.local.decode import recomputed
from warpsmith.agents.local.grammar import Grammar
from warpsmith.agents.local.retrace import canonical, retraced
from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.rl.train.policy import Policy, load_policy
from warpsmith.rl.train.sampler import LiveTasks, replies
from warpsmith.rl.train.served import Served
from warpsmith.rl.train.settings import LoraSettings, ModelSettings, SamplingSettings
from warpsmith.rl.train.task import group_relative
from warpsmith.rl.train.trainer import train


@dataclass
class Adapted:
    """Answers as the adapter would that the request names."""

    folder: Path
    server: ScriptedServer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    loaded: dict[Path, Policy] = field(default_factory=dict)

    def __call__(self, incoming: Incoming) -> Turn:
        with self.lock:
            return self._answer(incoming)

    def _answer(self, incoming: Incoming) -> Turn:
        assert self.server is not None
        assert self.server.adapters is not None
        adapter = Path(self.server.adapters[incoming.model])
        if adapter not in self.loaded:
            self.loaded[adapter] = load_policy(ModelSettings(path=self.folder, device="cpu", adapter=adapter))
        policy = self.loaded[adapter]
        told = Told(tuple(Message(role=m["role"], content=m["content"]) for m in incoming.messages))
        (one,) = replies(policy, [(told, int(incoming.body["seed"]))], SamplingSettings(), lambda: None)
        return Turn(fields=json.loads(one.text))


@dataclass(frozen=True)
class Told(ToyTask):
    """The toy with the messages that came."""

    given: tuple[Message, ...] = ()

    def __init__(self, given: tuple[Message, ...]) -> None:
        super().__init__()
        object.__setattr__(self, "given", given)

    @property
    def messages(self) -> Sequence[Message]:
        return self.given


def test_a_server_answers_with_the_version_that_it_is_given(policy: Policy, folder: Path, tmp_path: Path) -> None:
    asked = [(ToyTask(), seed) for seed in range(3)]
    player = Adapted(folder)
    with ScriptedServer(player=player, adapters={}) as server:
        player.server = server
        writer = Served(server.base_url, tmp_path / "served")
        for version in (0, 1):
            served = writer(policy, asked, SamplingSettings(), lambda: None)
            own = replies(policy, asked, SamplingSettings(), lambda: None)
            for one, other in zip(served, own, strict=True):
                assert one is not None
                assert one.text == other.text
                assert one.decisions.completion_ids == other.decisions.completion_ids
                assert np.allclose(one.decisions.logprobs, other.decisions.logprobs, atol=1e-4)
                assert one.decisions.model == other.decisions.model
            assert [name.rpartition("-")[2] for name in server.adapters or ()] == [f"v{version:08d}"]
            assert [path.name for path in (tmp_path / "served").iterdir()] == list(server.adapters or ())
            moved(policy)
        made = settings(folder, steps=1, sampling=SamplingSettings(group_size=3))
        train(made, LiveTasks([ToyTask()], made.sampling, group_relative, 0, writer), tmp_path)
        models = [str(one.body["model"]).rpartition("-")[2] for one in server.requests]
        assert models == [f"v{version:08d}" for version in (0, 1, 0) for _ in range(3)]
        assert {one.body["response_format"]["type"] for one in server.requests} == {"json_schema"}
    (line,) = lines(tmp_path)
    assert line["step"] == 1


@pytest.mark.parametrize("task", [ToyTask(), Wordy()])
def test_a_text_written_elsewhere_is_the_reply_that_would_have_been_written_here(policy: Policy, task: ToyTask) -> None:
    moved(policy)
    for one in written(policy, task, seeds=range(5)):
        text = policy.local.vocabulary.decode(one.completion_ids).partition("\n```")[0]

        def grammar() -> Grammar:
            return Grammar(policy.local.vocabulary, task.schema, (), text=6, lines=8)

        found = retraced(policy.local, one.prompt_ids, grammar, text, seed=0, temperature=0.7)
        assert found is not None
        assert found.text == text
        again = recomputed(policy.local, found.decisions)
        if task.name == "toy" and not isinstance(task, Wordy):
            assert found.decisions.completion_ids == one.completion_ids
            assert np.allclose(again, one.logprobs, atol=1e-4)


def test_a_reply_in_another_order_or_spacing_is_the_same_and_others_are_none() -> None:
    values = {name: options[0] for name, options in LEGAL.items()}
    schema = ToyTask().schema
    spaced = json.dumps(dict(reversed(values.items())), indent=2)
    assert canonical(spaced, schema) == json.dumps(values)
    for other in ("", "no JSON", "[1]", json.dumps(values | {"more": 1}), json.dumps({"threads": 64})):
        assert canonical(other, schema) is None


@pytest.mark.parametrize(
    ("server", "more", "error", "words"),
    [
        ({}, {}, EnvironmentError_, "--enable-lora"),
        (
            {"adapters": {}, "dialect": Dialect(json_schema="ignored")},
            {},
            EnvironmentError_,
            "holds no reply to its form",
        ),
        ({"adapters": {}, "dialect": Dialect(json_schema=400)}, {}, EnvironmentError_, "not supported"),
        ({"adapters": {}}, {"explore": 0.1}, UserError, "explore = 0"),
        ({"adapters": {}}, {"task": Wordy()}, EnvironmentError_, "holds no reply to its form"),
        ({"adapters": {}}, {"lora": None}, UserError, r"\[model\.lora\]"),
    ],
)
def test_what_a_server_cannot_do_is_told(
    folder: Path, tmp_path: Path, server: dict[str, Any], more: dict[str, Any], error: type[Exception], words: str
) -> None:  # fmt: skip
    lora = more.get("lora", LoraSettings(rank=4))
    policy = load_policy(ModelSettings(path=folder, device="cpu", lora=lora))
    with ScriptedServer(player=lambda incoming: Turn(prose="I had rather not."), **server) as running:
        writer = Served(running.base_url, tmp_path)
        sampling = SamplingSettings(explore=more.get("explore", 0.0))
        with pytest.raises(error, match=words):
            writer(policy, [(more.get("task", ToyTask()), 0)], sampling, lambda: None)


def test_blocks_of_code_come_as_the_model_writes_them(policy: Policy, tmp_path: Path) -> None:
    """No server holds fences to a form: what was asked for in words is read, and traced token by token."""
    values = {name: options[0] for name, options in LEGAL.items()}
    fields = json.dumps({"why": "so", **values}, indent=1)
    body = "float x = 1;\nreturn x;"
    told = [
        f"```json\n{fields}\n```\n```cuda body\n{body}\n```\n",
        f"Here it is.\n{fields}\n```cuda\n{body}\n```",
        fields,
        f"```cuda body\n{body}\n```",
    ]
    turns = iter(told)
    sampling = SamplingSettings(text=6, lines=40)
    with ScriptedServer(player=lambda incoming: Turn(prose=next(turns)), adapters={}) as server:
        writer = Served(server.base_url, tmp_path, requests=1)
        found = writer(policy, [(Wordy(), seed) for seed in range(4)], sampling, lambda: None)
        assert all("response_format" not in one.body for one in server.requests)
    fenced, worded, empty, none = found
    assert none is None, "a reply without its object is none"
    line = json.dumps({"why": "so", **values})
    for one in (fenced, worded):
        assert one is not None
        assert one.text == f"{line}\n```cuda body\n{body}\n```"
        code = [span for span in one.decisions.spans if span.kind == "code"]
        drawn = [at for span in code for at in range(span.start, span.stop) if not one.decisions.forced[at]]
        assert len(drawn) > 5, "every token of the code is a decision"
        assert all(one.decisions.logprobs[at] < 0 for at in drawn)
    assert empty is not None
    assert empty.text == f"{line}\n```cuda body\n\n```"


def test_a_server_that_is_gone_is_told(policy: Policy, tmp_path: Path) -> None:
    with ScriptedServer(adapters={}) as server:
        url = server.base_url
    with pytest.raises(EnvironmentError_, match="is the server running"):
        Served(url, tmp_path)(policy, [(ToyTask(), 0)], SamplingSettings(), lambda: None)
