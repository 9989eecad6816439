"""The words and tokens of one decision, from the blobs that its run has kept."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import ValidationError

from warpsmith.agents.llm.records import Message, ReplyRef
from warpsmith.agents.llm.wire import RawReply
from warpsmith.agents.local.decisions import Decisions
from warpsmith.kernels.errors import UserError
from warpsmith.rl.records import Tokens, text_hash
from warpsmith.rl.trajectories.scrub import Scrubber
from warpsmith.tools.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was asked and answered. Fields are None where the run lost them."""

    prompt: list[Message] | None
    prompt_hash: str | None
    completion: str | None
    tokens: Tokens | None
    version: str | None
    """Fingerprint of the model, where it ran in the process."""
    seed: int | None
    scrubbed: bool
    prompt_tokens: int | None
    completion_tokens: int | None


def exchange(store: RunStore, ref: ReplyRef, scrubber: Scrubber) -> Exchange:
    """The exchange that a proposal names. What is missing or damaged is None, and a decision remains."""
    prompt, raw, decided = _prompt(store, ref), _reply(store, ref), _decisions(store, ref)
    completion = (raw.arguments or raw.content) if raw is not None else None
    clean = [Message(role=one.role, content=scrubber.text(one.content)) for one in prompt] if prompt else None
    spoken = scrubber.text(completion) if completion is not None else None
    scrubbed = clean != prompt or spoken != completion
    usage = raw.usage if raw is not None else None
    return Exchange(
        prompt=clean,
        prompt_hash=text_hash(clean) if clean is not None else None,
        completion=spoken,
        tokens=Tokens.of(decided) if decided is not None and not scrubbed else None,
        version=decided.model if decided is not None else None,
        seed=decided.seed if decided is not None else None,
        scrubbed=scrubbed,
        prompt_tokens=usage.prompt_tokens if usage is not None else None,
        completion_tokens=usage.completion_tokens if usage is not None else None,
    )


def _blob(store: RunStore, digest: str | None) -> bytes | None:
    if digest is None:
        return None
    try:
        return store.get_blob(digest)
    except UserError:
        return None


def _prompt(store: RunStore, ref: ReplyRef) -> list[Message] | None:
    data = _blob(store, ref.prompt)
    try:
        sent = json.loads(data)["messages"] if data is not None else None
        return [Message.model_validate(one) for one in sent] if sent is not None else None
    except (ValueError, KeyError, TypeError):
        return None


def _reply(store: RunStore, ref: ReplyRef) -> RawReply | None:
    data = _blob(store, ref.reply)
    try:
        return RawReply.model_validate_json(data) if data is not None else None
    except ValidationError:
        return None


def _decisions(store: RunStore, ref: ReplyRef) -> Decisions | None:
    data = _blob(store, ref.decisions)
    try:
        return Decisions.unpacked(data) if data is not None else None
    except (ValueError, OSError, EOFError):
        return None
