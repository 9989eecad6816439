"""Replies that a run has paid for: looked up before any request, so that a resumed run never pays twice."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.records import Call, Message, Question, Rung
from warpsmith.agents.llm.wire import RawReply
from warpsmith.kernels.records import Record, content_hash
from warpsmith.tools.runs.jsonlines import JsonLines
from warpsmith.tools.runs.store import room_needed, write_atomically

FILE = "replies.jsonl"


class Entry(Record):
    """One line of replies.jsonl: an exchange, or the end of a question that no reply answered."""

    question: str
    """Key of the question."""
    exchange: str | None = None
    """Key of the exchange: the question on one rung with all that was said before."""
    call: Call | None = None
    gave_up: str | None = None
    """Why the question has no answer, after every rung was tried."""


class ReplyStore:
    """The replies of one run, in memory and, given its folder, in `replies.jsonl` with texts under `blobs/`.
    Thread-safe within one process; the run's lock keeps others out. A torn last line is dropped."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.broken: list[str] = []
        """Lines that were left out, with the reason."""
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._exchanges: dict[str, Entry] = {}
        self._answers: dict[str, Entry] = {}
        self._gave_up: dict[str, str] = {}
        self._texts: dict[str, bytes] = {}
        self._lines = JsonLines(folder / FILE, durable=True) if folder is not None else None
        if self._lines is not None:
            self._load(self._lines)

    def calls(self) -> list[Call]:
        """All exchanges so far, in order."""
        with self._lock:
            return [entry.call for entry in self._entries if entry.call is not None]

    def by_question(self) -> dict[str, list[Call]]:
        """All exchanges so far, by question: several where a reply did not count."""
        found: dict[str, list[Call]] = {}
        with self._lock:
            for entry in self._entries:
                if entry.call is not None:
                    found.setdefault(entry.question, []).append(entry.call)
        return found

    def calls_of(self, question: str) -> tuple[Call, ...]:
        """Those of one question."""
        with self._lock:
            return tuple(e.call for e in self._entries if e.question == question and e.call is not None)

    def answer(self, question: str) -> tuple[Call, RawReply] | None:
        """The accepted reply of a question."""
        return self._read(self._answers.get(question))

    def exchange(self, key: str) -> tuple[Call, RawReply] | None:
        """The reply of one exchange, accepted or not; exchanges without a reply are owed again."""
        return self._read(self._exchanges.get(key))

    def gave_up(self, question: str) -> str | None:
        """Why a question has no answer although every rung was tried."""
        return self._gave_up.get(question)

    def prompt(self, call: Call) -> dict[str, Any] | None:
        """What was sent: `messages` and the requested form."""
        data = self._blob(call.prompt_hash)
        return None if data is None else json.loads(data)

    def decisions(self, call: Call) -> bytes | None:
        """What a model of this process decided at each token, as `Decisions.unpacked` takes it."""
        return None if call.decisions_hash is None else self._blob(call.decisions_hash)

    def keep(
        self,
        question: str,
        exchange: str,
        call: Call,
        raw: RawReply | None,
        prompt: bytes,
        decisions: bytes | None = None,
    ) -> None:
        """Adds an exchange: its texts first, then its line, forced to the disk. `decisions`: of a model of this
        process, named by the call."""
        entry = Entry(question=question, exchange=exchange, call=call)
        texts = {call.prompt_hash: prompt}
        if raw is not None and call.reply_hash is not None:
            texts[call.reply_hash] = raw.model_dump_json().encode()
        if decisions is not None and call.decisions_hash is not None:
            texts[call.decisions_hash] = decisions
        with self._lock:
            for digest, data in texts.items():
                self._put(digest, data)
            self._append(entry)

    def give_up(self, question: str, reason: str) -> None:
        """Notes that every rung was tried in vain."""
        with self._lock:
            self._append(Entry(question=question, gave_up=reason))

    def mark(self) -> int:
        """Where the replies end by now, for `take_over`."""
        with self._lock:
            return len(self._entries)

    def take_over(self, other: ReplyStore, mark: int) -> None:
        """Adds what another store was given since its mark: exchanges that belong to this run as well."""
        for entry in other._entries[mark:]:
            call = entry.call
            digests = (call.prompt_hash, call.reply_hash, call.decisions_hash) if call is not None else ()
            with self._lock:
                for digest in filter(None, digests):
                    data = other._blob(digest)
                    if data is not None:
                        self._put(digest, data)
                self._append(entry)

    def _append(self, entry: Entry) -> None:
        if self._lines is not None and self.folder is not None:
            with room_needed(self.folder):
                self._lines.append(entry.model_dump_json(exclude_none=True))
        self._index(entry)

    def _index(self, entry: Entry) -> None:
        self._entries.append(entry)
        if entry.gave_up is not None:
            self._gave_up[entry.question] = entry.gave_up
        call = entry.call
        if call is None or call.reply_hash is None or entry.exchange is None:
            return
        self._exchanges[entry.exchange] = entry
        if call.accepted:
            self._answers[entry.question] = entry

    def _load(self, lines: JsonLines) -> None:
        lines.mend()
        for number, line in lines.numbered():
            try:
                self._index(Entry.model_validate_json(line))
            except ValidationError as error:
                fault = error.errors(include_url=False)[0]["msg"]
                self.broken.append(f"{lines.path}:{number} is no reply of this version ({fault}); it was left out")

    def _read(self, entry: Entry | None) -> tuple[Call, RawReply] | None:
        if entry is None or entry.call is None or entry.call.reply_hash is None:
            return None
        data = self._blob(entry.call.reply_hash)
        if data is None:
            return None
        try:
            return entry.call, RawReply.model_validate_json(data)
        except ValidationError:
            return None

    def _put(self, digest: str, data: bytes) -> None:
        if self.folder is None:
            self._texts[digest] = data
            return
        path = self.folder / "blobs" / digest
        if not path.exists():
            with room_needed(self.folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, data)

    def _blob(self, digest: str) -> bytes | None:
        """The bytes; None where they are missing or damaged: the reply is owed again then."""
        if self.folder is None:
            return self._texts.get(digest)
        try:
            data = (self.folder / "blobs" / digest).read_bytes()
        except OSError:
            return None
        return data if sha256(data) == digest else None


def question_key(endpoint: Endpoint, question: Question[Any]) -> str:
    """What makes two questions one: model, server, messages, reply schema, code slots, sample, temperature."""
    return content_hash(
        {
            "model": endpoint.model, "server": endpoint.base_url, "messages": _plain(question.messages),
            "reply": question.reply.model_json_schema(), "code": list(question.code), "sample": question.sample,
            "temperature": question.temperature,
        }
    )  # fmt: skip


def exchange_key(question: str, rung: Rung, messages: tuple[Message, ...], room: int) -> str:
    """The question on one rung, with all that was said before and the room that was wanted."""
    return content_hash({"question": question, "rung": rung, "messages": _plain(messages), "room": room})


def sha256(data: bytes) -> str:
    """Hex digest: the name of a blob."""
    return hashlib.sha256(data).hexdigest()


def _plain(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [message.model_dump() for message in messages]
