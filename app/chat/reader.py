"""Where the person's lines come from: a terminal with editing and completion, or a pipe, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings

LONGEST = 100_000
"""Characters of a line that are read; what is longer is refused as a whole."""

_SECRET = re.compile(r"://[^/\s@]+@(?!https?://)")
"""A user's name or password in an address."""

LEAVING = "(Ctrl-D or /exit leaves)"

Complete = Callable[[str], Iterable[tuple[str, int, str]]]
"""Text before the cursor -> (completion, start relative to the cursor, what it means)."""


class Reader(Protocol):
    """One line at a time."""

    interactive: bool
    """Whether a person sits there."""

    async def line(self, prompt: str) -> str | None:
        """The next line without its end; None where there are no more."""

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """While the search works and no line is read."""


class PipeReader:
    """Lines of a stream, echoed so that the transcript reads like a session; on a terminal without abilities the
    terminal echoes, and the prompt alone is written."""

    def __init__(
        self, source: TextIO | None = None, echo: Callable[[str], None] | None = None, *, interactive: bool = False
    ) -> None:
        self._source = source or sys.stdin
        self._echo = echo
        self.interactive = interactive
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._started = False

    async def line(self, prompt: str) -> str | None:
        """The next line of the stream."""
        if not self._started:
            self._started = True
            # A daemon: a read that never ends must not keep the process.
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._pump, args=(loop,), daemon=True).start()
        if self.interactive:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        text = await self._lines.get()
        if text is not None and self._echo is not None and not self.interactive:
            self._echo(f"{prompt}{text}")
        return text

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Nothing to do."""
        yield

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        stream = getattr(self._source, "buffer", None)
        lines: Iterable[str] = (raw.decode(errors="replace") for raw in stream) if stream else self._source
        with contextlib.suppress(RuntimeError, ValueError):
            for text in lines:
                loop.call_soon_threadsafe(self._lines.put_nowait, text.rstrip("\r\n"))
            loop.call_soon_threadsafe(self._lines.put_nowait, None)


class TerminalReader:
    """A prompt_toolkit prompt: history, completion, a footer, modes by Shift-Tab."""

    interactive = True

    def __init__(
        self, history: Path | None, *, complete: Complete, footer: Callable[[], str], cycle: Callable[[], str],
        message: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`cycle` goes to the next mode and says which; `message` prints a line above the prompt."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory

        self._message = message

        class WithoutSecrets(FileHistory):
            """Lines with a password in an address stay out of the file."""

            def store_string(self, string: str) -> None:
                if not _SECRET.search(string):
                    super().store_string(string)

        kept: History = WithoutSecrets(str(history)) if history else InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            history=kept, completer=_completer(complete), complete_while_typing=False,
            bottom_toolbar=footer, key_bindings=self._keys(cycle), enable_open_in_editor=False,
        )  # fmt: skip

    async def line(self, prompt: str) -> str | None:
        """A line, once it is entered. Ctrl-C keeps what was typed (Up brings it back); Ctrl-D on an empty line ends."""
        while True:
            try:
                return await self._session.prompt_async(prompt, handle_sigint=False)
            except KeyboardInterrupt:
                typed = self._session.default_buffer.text
                if typed.strip():
                    self._session.history.append_string(typed)
                    self._message("(kept: press Up to get it back)")
                else:
                    self._message(LEAVING)
            except EOFError:
                return None

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """What is typed meanwhile stays in the terminal's queue, also when Ctrl-C is pressed."""
        import termios

        try:
            number = sys.stdin.fileno()
            before = termios.tcgetattr(number)
        except (OSError, ValueError, termios.error):
            yield
            return
        during = list(before)
        during[3] |= termios.NOFLSH
        termios.tcsetattr(number, termios.TCSANOW, during)
        try:
            yield
        finally:
            termios.tcsetattr(number, termios.TCSANOW, before)

    def _keys(self, cycle: Callable[[], str]) -> KeyBindings:
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys

        keys = KeyBindings()

        @keys.add(Keys.Vt100MouseEvent)
        def _(event: Any) -> None:
            """Pasted colours look like a mouse, which nobody listens to."""

        @keys.add("s-tab")
        def _(event: Any) -> None:
            text = cycle()
            run_in_terminal(lambda: self._message(text))

        return keys


def _completer(complete: Complete) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Words(Completer):
        """Commands and their arguments."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            for text, start, meaning in complete(document.text_before_cursor):
                yield Completion(text, start_position=start, display_meta=meaning)

    return Words()
