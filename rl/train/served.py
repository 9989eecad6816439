"""Replies by a model server: it gets each version's adapter by its folder, and is asked for the same forms.

For servers that load adapters while they run, as vLLM does with `--enable-lora` and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=True (tried on a scripted server only). A server's own log-probabilities are of another
distribution than the grammar's, so those of a reply are computed here, by the policy that the server had.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpsmith.agents.llm.client import ChatClient, Sent
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.faults import ExchangeFailed
from warpsmith.agents.local.decode import Written
from warpsmith.agents.local.grammar import Grammar
from warpsmith.agents.local.retrace import canonical, retraced
from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.settings import SamplingSettings
from warpsmith.rl.train.task import Task

if TYPE_CHECKING:
    import httpx2

LOAD_S = 120.0
"""Seconds that a server may take to load an adapter."""


@dataclass
class Served:
    """A `Writer` that asks a server. Used by one sampler."""

    base_url: str
    folder: Path
    """Where adapters are written; the server sees it under the same path."""
    requests: int = 32
    """At a time."""
    _loaded: str | None = field(default=None, init=False)
    _own: str = field(default_factory=lambda: secrets.token_hex(4), init=False)
    """Part of the adapters' names: a server may still hold those of an earlier training or process."""

    def __call__(
        self, policy: Policy, asked: Sequence[tuple[Task, int]], settings: SamplingSettings, check: Callable[[], None]
    ) -> list[Written | None]:
        """A reply for each task and seed; None for one that is not of its form. UserError: what a server cannot do.
        EnvironmentError_: it gave out, or holds no reply to its form."""
        self._require(policy, settings)
        name = self._publish(policy)
        with ChatClient(endpoint(name, self.base_url)) as client, ThreadPoolExecutor(self.requests) as pool:
            texts = list(pool.map(lambda one: self._asked(client, one[0], one[1], settings, check), asked))
        written = [
            self._read(policy, task, seed, text, settings) for (task, seed), text in zip(asked, texts, strict=True)
        ]
        if not any(written):
            raise EnvironmentError_(
                f"{self.base_url} holds no reply to its form, the first is {texts[0][:80]!r}; `warpsmith doctor "
                f"--server {self.base_url}` says what it enforces"
            )
        return _scored(policy, written)

    def _require(self, policy: Policy, settings: SamplingSettings) -> None:
        if not policy.has_adapter:
            raise UserError(
                "a server is given adapters, not whole models: train with [model.lora], or sample in process"
            )
        if settings.explore:
            raise UserError("a server draws from the model alone: write explore = 0 under [sampling]")

    def _publish(self, policy: Policy) -> str:
        """Has the server load this version; its name there."""
        name = f"warpsmith-{self._own}-v{policy.version:08d}"
        if self._loaded == name:
            return name
        path = self.folder / name
        policy.save(path)
        self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(path.resolve())})
        before, self._loaded = self._loaded, name
        if before is not None:
            self._post("unload_lora_adapter", {"lora_name": before})
            shutil.rmtree(self.folder / before)
        return name

    def _post(self, what: str, body: dict[str, Any]) -> None:
        import httpx2

        there = endpoint("adapter", self.base_url)
        headers = {"Authorization": f"Bearer {there.sent_key}"}
        try:
            with _client(there.local) as client:
                answer = client.post(f"{there.base_url}/{what}", json=body, headers=headers, timeout=LOAD_S)
        except httpx2.HTTPError as error:
            raise EnvironmentError_(f"{there.base_url} cannot be reached ({error}): is the server running?") from None
        if answer.status_code >= 400:
            words = there.scrub(" ".join(answer.text.split())[:200])
            raise EnvironmentError_(
                f"{there.base_url}/{what} answers {answer.status_code} ({words}); vLLM needs --enable-lora, a "
                "--max-lora-rank of at least the adapter's, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            )

    def _asked(
        self, client: ChatClient, task: Task, seed: int, settings: SamplingSettings, check: Callable[[], None]
    ) -> str:
        """The text of a reply; empty where there was none. No server holds fenced blocks to a form: with code the
        words of the prompt ask for it, and a reply that has another one is missing."""
        check()
        form = {} if task.code else {"response_format": _form(task.schema)}
        arguments = {
            "messages": [{"role": one.role, "content": one.content} for one in task.messages],
            "temperature": settings.temperature, "seed": seed % (1 << 31), **form,
        }  # fmt: skip
        try:
            return client.complete(Sent(arguments)).content or ""
        except ExchangeFailed as error:
            raise EnvironmentError_(f"sampling: {error}") from error

    def _read(self, policy: Policy, task: Task, seed: int, text: str, settings: SamplingSettings) -> Written | None:
        local = policy.local
        form = canonical(text, task.schema, task.code)
        if form is None:
            return None

        def grammar() -> Grammar:
            return Grammar(local.vocabulary, task.schema, task.code, text=settings.text, lines=settings.lines)

        prompt = tuple(local.prompt(task.messages))
        return retraced(local, prompt, grammar, form, seed=seed, temperature=settings.temperature)


def _form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}


def _client(local: bool) -> httpx2.Client:
    """No proxy for a server of this machine."""
    import httpx2

    return httpx2.Client(trust_env=not local)


def _scored(policy: Policy, written: Sequence[Written | None]) -> list[Written | None]:
    """With the log-probabilities that the policy gives."""
    found = iter(policy.scored([one.decisions for one in written if one is not None]))
    scored: list[Written | None] = []
    for one in written:
        if one is None:
            scored.append(None)
            continue
        values = iter(next(found).tolist())
        logprobs = tuple(0.0 if forced else next(values) for forced in one.decisions.forced)
        scored.append(replace(one, decisions=one.decisions.model_copy(update={"logprobs": logprobs})))
    return scored
