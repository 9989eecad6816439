"""What was spent on models, per agent role and model, and the caps that end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.prices import Prices
from warpsmith.agents.llm.records import Call, CapReached, Usage
from warpsmith.kernels.records import Record

_LEAST_ROOM = 32
"""Tokens. A reply that may not be longer is not worth its prompt."""


class Caps(Record):
    """Hard limits; None: no limit."""

    max_cost: float | None = Field(default=None, ge=0)
    """USD."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Prompt and completion, of all calls."""
    max_calls: int | None = Field(default=None, ge=0)
    """Requests, those that fail included."""
    minutes: float | None = Field(default=None, ge=0)
    """Of this process, from the opening of the account."""
    prices: tuple[str, ...] = ()
    """What the user says that tokens cost, as `Prices.parse` reads it."""


class Line(Record):
    """What one agent role spent on one model."""

    role: str
    model: str
    calls: int = 0
    failed: int = 0
    """Calls without a reply."""
    invalid: int = 0
    """Calls whose reply did not count. They are paid like any other."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    """Some counts were estimated, because the server gave none."""
    cost_usd: float | None = 0.0
    """None: a price is not known."""
    latency_s: float = 0.0

    def plus(self, call: Call) -> Line:
        """The line with one call more."""
        known = self.cost_usd is not None and call.cost_usd is not None
        return self.model_copy(
            update={
                "calls": self.calls + 1,
                "failed": self.failed + (call.error is not None),
                "invalid": self.invalid + (call.error is None and call.invalid is not None),
                "prompt_tokens": self.prompt_tokens + call.usage.prompt_tokens,
                "completion_tokens": self.completion_tokens + call.usage.completion_tokens,
                "cached_tokens": self.cached_tokens + call.usage.cached_tokens,
                "reasoning_tokens": self.reasoning_tokens + call.usage.reasoning_tokens,
                "estimated": self.estimated or call.usage.estimated,
                "cost_usd": (self.cost_usd or 0.0) + (call.cost_usd or 0.0) if known else None,
                "latency_s": self.latency_s + call.latency_s,
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """The right to make one request: what it may cost is set aside until it is settled. Told apart by identity."""

    room: int
    """Tokens that the reply may have: what was wanted, or what the caps leave."""
    tokens: int
    cost: float
    seconds: float | None
    """Left of the cap on minutes."""

    def ran_out(self, seconds: float) -> bool:
        """Whether a request that took so long took all that was left."""
        return self.seconds is not None and seconds >= self.seconds


class Account:
    """Books every call and admits a request only while all caps hold with it. Thread-safe."""

    def __init__(self, caps: Caps | None = None, prices: Prices | None = None) -> None:
        self.caps = caps or Caps()
        self.prices = prices or Prices.usual(self.caps.prices)
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, str], Line] = {}
        self._pending: set[Admission] = set()
        self._tokens, self._calls, self._cost = 0, 0, 0.0
        self._opened = time.monotonic()

    def require_prices(self, endpoints: Iterable[Endpoint]) -> None:
        """UserError where money is capped and a price is not known."""
        if self.caps.max_cost is not None:
            self.prices.require(list(endpoints))

    def restore(self, calls: Iterable[Call]) -> None:
        """Books the calls of an earlier part of the run."""
        with self._lock:
            for call in calls:
                self._book(call)

    def admit(self, endpoint: Endpoint, prompt_tokens: int, room: int) -> Admission:
        """Sets aside what a request may cost; CapReached where a cap leaves too little for it."""
        with self._lock:
            calls = self._calls + len(self._pending)
            if self.caps.max_calls is not None and calls >= self.caps.max_calls:
                raise CapReached(f"--max-calls {self.caps.max_calls} is reached", "calls")
            seconds = self._seconds_left()
            if seconds is not None and seconds <= 0:
                raise self.minutes_over()
            room = self._room_by_tokens(prompt_tokens, room)
            room, cost = self._room_by_cost(endpoint, prompt_tokens, room)
            admission = Admission(room, prompt_tokens + room, cost, seconds)
            self._pending.add(admission)
            return admission

    def settle(self, admission: Admission, call: Call | None) -> None:
        """Books the call in place of what was set aside; None: no request was made."""
        with self._lock:
            self._pending.discard(admission)
            if call is not None:
                self._book(call)

    def lines(self) -> list[Line]:
        """One line per role and model, in the order of their first call."""
        with self._lock:
            return list(self._lines.values())

    def total(self) -> Line:
        """Everything together, as role `all` and model `all`."""
        with self._lock:
            lines = list(self._lines.values())
        costs = [line.cost_usd for line in lines]
        sums = {
            name: sum(getattr(line, name) for line in lines)
            for name in (
                "calls", "failed", "invalid", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens",
                "latency_s",
            )
        }  # fmt: skip
        known = [cost for cost in costs if cost is not None]
        cost = sum(known) if len(known) == len(costs) else None
        estimated = any(line.estimated for line in lines)
        return Line(role="all", model="all", cost_usd=cost, estimated=estimated, **sums)

    def reached(self) -> CapReached | None:
        """The cap that has been reached, if one has."""
        with self._lock:
            caps = self.caps
            if caps.max_calls is not None and self._calls >= caps.max_calls:
                return CapReached(f"--max-calls {caps.max_calls} is reached", "calls")
            if caps.max_tokens is not None and self._tokens >= caps.max_tokens:
                return CapReached(f"--max-tokens {caps.max_tokens} is reached ({self._tokens} used)", "tokens")
            if caps.max_cost is not None and self._cost >= caps.max_cost:
                return CapReached(f"--max-cost {caps.max_cost:g} USD is reached ({self._cost:.4f} spent)", "cost")
            left = self._seconds_left()
            return None if left is None or left > 0 else self.minutes_over()

    def minutes_over(self) -> CapReached:
        """What ends the run once its minutes are over."""
        return CapReached(f"--minutes {self.caps.minutes or 0:g} are over", "minutes")

    def _seconds_left(self) -> float | None:
        if self.caps.minutes is None:
            return None
        return self.caps.minutes * 60 - (time.monotonic() - self._opened)

    def _room_by_tokens(self, prompt_tokens: int, room: int) -> int:
        cap = self.caps.max_tokens
        if cap is None:
            return room
        left = cap - self._tokens - sum(admission.tokens for admission in self._pending)
        if left - prompt_tokens < min(room, _LEAST_ROOM):
            raise CapReached(
                f"--max-tokens {cap} is reached: {self._tokens} used, the next request needs about {prompt_tokens} and "
                "its reply",
                "tokens",
            )
        return min(room, left - prompt_tokens)

    def _room_by_cost(self, endpoint: Endpoint, prompt_tokens: int, room: int) -> tuple[int, float]:
        cap = self.caps.max_cost
        prompt = self.prices.cost(endpoint, Usage(prompt_tokens=prompt_tokens))
        whole = self.prices.cost(endpoint, Usage(prompt_tokens=prompt_tokens, completion_tokens=room))
        if prompt is None or whole is None:
            if cap is not None:
                self.prices.require([endpoint])
            return room, 0.0
        if cap is None:
            return room, whole
        left = cap - self._cost - sum(admission.cost for admission in self._pending)
        each = (whole - prompt) / max(room, 1)
        if left < prompt + each * min(room, _LEAST_ROOM):
            raise CapReached(
                f"--max-cost {cap:g} USD is reached: {self._cost:.4f} spent, the next request may cost {whole:.4f}",
                "cost",
            )
        room = min(room, int((left - prompt) / each)) if each > 0 else room
        return room, prompt + each * room

    def _book(self, call: Call) -> None:
        key = (call.role, f"{call.model}@{call.server}")
        line = self._lines.get(key) or Line(role=call.role, model=call.model)
        self._lines[key] = line.plus(call)
        self._calls += 1
        self._tokens += call.usage.total
        self._cost += call.cost_usd or 0.0
