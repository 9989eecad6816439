"""What is asked of a model and what is known of each exchange: questions, answers, calls and how asking can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

from warpsmith.kernels.errors import EnvironmentError_, WarpsmithError
from warpsmith.kernels.records import Record

Rung = Literal["schema", "tool", "object", "text"]
"""How the form of a reply is asked for: an enforced JSON schema, a forced tool call, a JSON object with the schema in
the prompt, or plain text with fenced blocks."""

T = TypeVar("T", bound=BaseModel)


class Message(Record):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(Record):
    """Tokens of one exchange, as the server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Part of the prompt that the server took from its cache."""
    reasoning_tokens: int = 0
    """Part of the completion that is thought, not text."""
    estimated: bool = False
    """The server gave no usable count: four bytes of text were taken as a token."""

    @property
    def total(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


class Call(Record):
    """One HTTP exchange with a server, also one that failed."""

    at: str
    """UTC, ISO 8601."""
    model: str
    server: str
    """Base URL without user, password and query."""
    role: str
    """Agent role, `writer` or `interpreter`."""
    purpose: str
    rung: Rung
    sample: int = 0
    latency_s: float
    usage: Usage
    cost_usd: float | None = None
    """None: the price of this model is not known."""
    finish: str | None = None
    """The server's finish_reason."""
    error: str | None = None
    """Why there is no reply at all: transport, refused by the server, broken response."""
    invalid: str | None = None
    """Why the reply that came does not count: refused, cut off, no JSON, a value that is not legal."""
    prompt_hash: str
    """SHA-256 of the messages and the requested form as sent; with `reply_hash` the names of the kept texts."""
    reply_hash: str | None = None
    decisions_hash: str | None = None
    """Name of what a model of this process decided at each token."""

    @property
    def accepted(self) -> bool:
        """Whether its reply is the answer."""
        return self.error is None and self.invalid is None


@dataclass(frozen=True, slots=True)
class ReplyRef:
    """Where a model's reply is kept: the hashes that name its blobs in the run folder."""

    model: str
    prompt: str
    reply: str | None
    decisions: str | None = None
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One question to a model."""

    role: str
    """Agent role, or `writer` or `interpreter`: what it is accounted under."""
    purpose: str
    """What it is for, in a word or two: `start`, `refine`, `repair`, `freeform`."""
    messages: tuple[Message, ...]
    reply: type[T]
    """The pydantic model of the answer. Literals become enums of the schema."""
    code: tuple[str, ...] = ()
    """Names of str fields of `reply` that hold code: they travel as fenced blocks, outside the JSON."""
    sample: int = 0
    """Tells questions with the same text apart, where several answers are wanted."""
    on_text: Callable[[str], None] | None = None
    """Given each piece of text as it arrives, in the asking thread. Not called for replayed answers."""
    max_tokens: int | None = None
    """Room for the reply; None: by the size of the schema, more where there is code."""
    temperature: float | None = None
    """None: the server's default. Left out for models that reject it."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A valid answer."""

    value: T
    text: str
    """The reply as the model wrote it."""
    calls: tuple[Call, ...]
    """All exchanges that it took, in order; the last one is the accepted one."""
    replayed: bool
    """It was answered from kept replies alone: nothing was sent."""


class Asker(Protocol):
    """Answers questions. Thread-safe: several questions may be asked at once."""

    @property
    def name(self) -> str:
        """For people and records: the model and, where it is not the usual one, the server."""

    def ask(self, question: Question[T]) -> Answer[T]:
        """A valid answer, or one of: NoReply (this question failed, others may not), CapReached (stop the run with
        what it has), ServerUnusable (nothing can be asked here)."""


class NoReply(WarpsmithError):
    """No valid answer after everything that was tried. The message says what went wrong; the run goes on without it."""

    def __init__(self, message: str, calls: tuple[Call, ...] = ()) -> None:
        super().__init__(message)
        self.calls = calls
        """All exchanges that were tried."""


class Interrupted(NoReply):
    """A person, or the end of the run, broke the question off."""


class CapReached(WarpsmithError):
    """A cap on money, tokens, calls or minutes ends the run, which keeps what it has."""

    exit_code = 3

    def __init__(self, message: str, cap: Literal["cost", "tokens", "calls", "minutes"]) -> None:
        super().__init__(message)
        self.cap = cap


class ServerUnusable(EnvironmentError_):
    """The server cannot be used at all: not there, key refused, unknown model. The message names the remedy."""
