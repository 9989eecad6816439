"""One server, one request at a time or many: the SDK's chat completions with deadlines, streaming and interruption."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.faults import ExchangeFailed, from_sdk, not_chat
from warpsmith.agents.llm.lane import Lane, Turn
from warpsmith.agents.llm.records import Usage
from warpsmith.agents.llm.wire import RawReply, Stream, read_completion
from warpsmith.kernels.environment import positive_number

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

TIMEOUT_VARIABLE = "WARPSMITH_REPLY_TIMEOUT_S"

_INTERRUPTED, _CLOSED = "the question was interrupted", "the connection to the model was closed"
_DONE = None
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A server that does not stream sends nothing until the whole reply is made."""

    connect_s: float = 10.0
    silence_s: float = 300.0
    """Between two pieces of an answer."""
    total_s: float = 600.0
    """One exchange with all of the SDK's retries."""

    @classmethod
    def usual(cls) -> Timeouts:
        """The defaults; $WARPSMITH_REPLY_TIMEOUT_S replaces the total. UserError where it holds no usable number."""
        total = positive_number(TIMEOUT_VARIABLE, "give a finite positive number of seconds, or unset it")
        if total is None:
            return cls()
        return cls(silence_s=min(cls().silence_s, total), total_s=total)


@dataclass(frozen=True, slots=True)
class Sent:
    """What is sent: the SDK's arguments, apart from the model."""

    arguments: dict[str, Any]
    stream: bool = False
    count_stream: bool = False
    """Ask for the usage at the end of the stream."""
    extra_body: dict[str, Any] = field(default_factory=dict)


class ChatClient:
    """Speaks to one endpoint. The requests run in an event loop of their own thread, so that any of them can be ended
    from any thread at any moment, and so that one deadline holds for headers, body and retries together."""

    def __init__(
        self, endpoint: Endpoint, *, timeouts: Timeouts | None = None, retries: int = 2, lane: Lane | None = None
    ) -> None:
        """`lane`: shared by the clients of one server, whatever their models."""
        self.endpoint = endpoint
        self.lane = lane or Lane()
        self.timeouts = timeouts or Timeouts.usual()
        self._retries = retries
        # Reentrant: a signal may ask for an end while this thread holds it.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: AsyncOpenAI | None = None
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._interrupts = 0
        self._closed = False

    def complete(
        self, sent: Sent, on_text: Callable[[str], None] | None = None, *, limit_s: float | None = None
    ) -> RawReply:
        """The reply. ExchangeFailed says why there is none. `limit_s`: seconds left, where fewer than the usual."""
        before = self._interrupts
        with self.lane.turn(lambda: self._closed or self._interrupts != before) as turn:
            if turn is None:
                raise ExchangeFailed("interrupted", _CLOSED if self._closed else _INTERRUPTED)
            left = None if limit_s is None else max(limit_s - turn.waited_s, 0.0)
            reply = self._now(sent, on_text, left)
            if sent.stream and reply.finish is None:
                self._refuse_unfinished(reply, turn)
            return reply

    def _refuse_unfinished(self, reply: RawReply, turn: Turn) -> None:
        """A stream that ended without saying why. Some servers never say; then what came counts."""
        if not turn.alone:
            message = f"{self.endpoint.base_url} broke the reply off when another request came"
            raise ExchangeFailed("crowded", message, text=reply.text)
        if not reply.written:
            raise not_chat(self.endpoint, "")

    def _now(self, sent: Sent, on_text: Callable[[str], None] | None, limit_s: float | None) -> RawReply:
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        future = self._submit(self._exchange(sent, pieces.put, limit_s))
        future.add_done_callback(lambda _: pieces.put(_DONE))
        try:
            while (piece := pieces.get()) is not _DONE:
                if on_text is not None:
                    on_text(piece)
            return future.result()
        except concurrent.futures.CancelledError:
            raise ExchangeFailed("interrupted", _INTERRUPTED) from None
        finally:
            future.cancel()
            with self._lock:
                self._running.discard(future)

    def models(self) -> list[str]:
        """Names of the models that the server offers; ExchangeFailed where it does not say."""
        return [name for name, _ in self.model_facts()]

    def model_facts(self) -> list[tuple[str, dict[str, Any]]]:
        """The same with whatever else the server tells of each."""
        future = self._submit(self._list_models())
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ExchangeFailed("interrupted", _INTERRUPTED) from None

    def interrupt(self) -> None:
        """Ends all requests under way; each raises ExchangeFailed of kind `interrupted`. New ones may follow."""
        with self._lock:
            self._interrupts += 1
            running = list(self._running)
        for future in running:
            future.cancel()
        self.lane.wake()

    def stop(self) -> None:
        """Ends all requests under way and refuses new ones. Waits for nothing, so that a signal may call it."""
        self._closed = True
        self.interrupt()

    def close(self) -> None:
        """Ends all requests under way and gives connections and thread back."""
        self.stop()
        with self._lock:
            loop, thread, client = self._loop, self._thread, self._client
            self._loop = self._thread = self._client = None
        if loop is None:
            return
        if client is not None:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result(timeout=5)
        # Streams that were broken off leave generators of the SDK behind.
        asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop).result(timeout=5)
        loop.call_soon_threadsafe(loop.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def __enter__(self) -> ChatClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # inside the loop

    async def _exchange(self, sent: Sent, emit: Callable[[str], None], limit_s: float | None) -> RawReply:
        limit = self.timeouts.total_s if limit_s is None else min(limit_s, self.timeouts.total_s)
        started = time.monotonic()
        stream = Stream(emit)
        try:
            async with asyncio.timeout(limit):
                reply = await self._send(sent, stream)
        except TimeoutError:
            message = f"{self.endpoint.base_url} did not finish its reply within {limit:.0f} s"
            raise ExchangeFailed("timeout", message, text=stream.text) from None
        except ExchangeFailed as error:
            error.text = error.text or stream.text
            raise
        return reply.timed(time.monotonic() - started)

    async def _send(self, sent: Sent, stream: Stream) -> RawReply:
        import httpx2
        import openai

        arguments: dict[str, Any] = sent.arguments | {
            "model": self.endpoint.model,
            "extra_body": sent.extra_body or None,
        }
        try:
            if not sent.stream:
                completion = await self._sdk().chat.completions.create(**arguments)
                return read_completion(completion, self.endpoint)
            if sent.count_stream:
                arguments["stream_options"] = {"include_usage": True}
            chunks = await self._sdk().chat.completions.create(stream=True, **arguments)
            async with chunks:
                async for chunk in chunks:
                    stream.add(chunk)
            if not stream.heard and "event-stream" in chunks.response.headers.get("content-type", ""):
                return RawReply()
            return stream.reply(self.endpoint)
        except openai.APIError as error:
            raise from_sdk(error, self.endpoint) from error
        except httpx2.TimeoutException:
            raise ExchangeFailed("timeout", f"{self.endpoint.base_url} fell silent in the middle of a reply") from None
        except httpx2.HTTPError:
            message = f"{self.endpoint.base_url} closed the connection before the reply was complete"
            raise ExchangeFailed("broken", message) from None
        except ValueError as error:
            # The SDK hands a body that is no JSON on as the decoder's own error.
            raise not_chat(self.endpoint, str(error)) from error

    async def _list_models(self) -> list[tuple[str, dict[str, Any]]]:
        import openai

        try:
            async with asyncio.timeout(min(30.0, self.timeouts.total_s)):
                page = await self._sdk().models.list()
        except openai.APIError as error:
            raise from_sdk(error, self.endpoint) from error
        except TimeoutError:
            raise ExchangeFailed("timeout", f"{self.endpoint.base_url} did not answer in time") from None
        except ValueError as error:
            raise not_chat(self.endpoint, str(error)) from error
        entries = getattr(page, "data", None)
        if not isinstance(entries, list):
            raise not_chat(self.endpoint, str(page))
        return [(str(entry.id), entry.model_dump()) for entry in entries if hasattr(entry, "id")]

    def _sdk(self) -> AsyncOpenAI:
        """Made in the loop, on first use: importing the SDK takes a second."""
        if self._client is None:
            import httpx2
            import openai

            times = self.timeouts
            timeout = httpx2.Timeout(times.silence_s, connect=times.connect_s)
            self._client = openai.AsyncOpenAI(
                api_key=self.endpoint.sent_key,
                base_url=self.endpoint.base_url,
                timeout=timeout,
                max_retries=self._retries,
                http_client=_transport(self.endpoint, timeout),
            )
        return self._client

    def _submit(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        with self._lock:
            if self._closed:
                work.close()
                raise ExchangeFailed("interrupted", _CLOSED)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="llm", daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._running.add(future)
            return future


def _transport(endpoint: Endpoint, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """A proxy of the environment cannot reach a server on this machine. Loading certificates takes its time, and plain
    HTTP that follows no redirect never looks at them."""
    import httpx2

    plain = endpoint.base_url.startswith("http://")
    return httpx2.AsyncClient(
        timeout=timeout, trust_env=not endpoint.local, verify=not plain, follow_redirects=not plain
    )


def estimated_usage(prompt_bytes: int, reply_bytes: int) -> Usage:
    """A count where the server gives none: four bytes a token, rounded up."""
    return Usage(prompt_tokens=-(-prompt_bytes // 4), completion_tokens=-(-reply_bytes // 4), estimated=True)
