"""How a command ends that could not finish: interrupts and a machine that gives out, as one line and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import json as jsonlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import NoReturn

from warpsmith.app.wording import printable
from warpsmith.kernels.errors import EnvironmentError_, UserError, WarpsmithError

FREE_SPACE = "free some space, or choose a folder on another disk, and run the command again"
MORE_FILES = "raise the limit (ulimit -n 1024 or more) and run the command again"
MORE_PROCESSES = "raise the limit (ulimit -u 1024 or more) or end other programs, and run the command again"
OPEN_STDOUT = "run the command again without `>&-`; `> /dev/null` throws a result away on purpose"
MORE_MEMORY = "raise the limit (ulimit -v unlimited) or end other programs, and run the command again"

_MACHINE = {
    errno.ENOSPC: ("no room left", FREE_SPACE), errno.EDQUOT: ("no room left", FREE_SPACE),
    errno.EFBIG: ("no room left", FREE_SPACE),
    errno.EMFILE: ("too many open files", MORE_FILES), errno.ENFILE: ("too many open files", MORE_FILES),
    errno.EAGAIN: ("no further process or thread can be started", MORE_PROCESSES),
    errno.ENOMEM: ("out of memory", MORE_MEMORY),
    errno.EBADF: ("standard output is closed, so the result went nowhere", OPEN_STDOUT),
    errno.EIO: ("the disk does not answer", "look at the system's log (dmesg) and run the command again"),
}  # fmt: skip
"""What the machine lacks, with the remedy."""
_PLACE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP,
    errno.ENAMETOOLONG, errno.ENODEV, errno.EINVAL,
}  # fmt: skip
"""What is wrong with a path that the user named."""


class Interrupted(KeyboardInterrupt):
    """An interrupt that says what was kept and how to go on."""


class Ended(WarpsmithError):
    """A signal ended the command, or nobody reads its output any more."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


NOTHING = "nothing was written; run the command again"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_received: list[int] = []
"""The signals that arrived while a command ran, the first of them first."""


def listen() -> None:
    """At the begin of the process: until a command runs, and after it, a signal has nothing to wait for."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _at_once)
    # Registered first, run last: libraries may leave Python a note of an interrupt that makes it kill itself.
    atexit.register(_leave)


def _at_once(number: int, frame: types.FrameType | None) -> None:
    if not _begun:
        os.write(2, f"interrupted: {NOTHING}\n".encode())
    os._exit(128 + number)


_begun: list[str] = []
"""Whether a command has begun."""
_code: list[int] = []
"""The exit code of a process that an interrupt ends."""


def _leave() -> None:
    if _code:
        silence_closed_streams()
        os._exit(_code[0])


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt inside of the block, and SIGTERM the same; what a parent ignores stays ignored."""
    _begun.append("command")
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in zip(_SIGNALS, (signal.default_int_handler, _as_interrupt), strict=True):
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])


@contextlib.contextmanager
def heard_at_once() -> Iterator[None]:
    """Inside of an event loop: an interrupt ends what is done without giving the loop a turn, such as a module that
    loads slowly. asyncio's own handler waits for the turn."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _as_interrupt(number: int, frame: types.FrameType | None) -> None:
    _received.append(number)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    # asyncio.run has a handler of its own for SIGINT, which lets the tasks clean up.
    signal.raise_signal(signal.SIGINT)


def interrupt_code(name: str | None = None) -> int:
    """130, or 143 for SIGTERM. `name`: the signal that was handled; None: the first that `listen` saw."""
    if name is not None:
        return 128 + (signal.SIGTERM if name == "SIGTERM" else signal.SIGINT)
    return 128 + (_received[0] if _received else signal.SIGINT)


@contextlib.contextmanager
def interrupt_says(text: str | Callable[[], str]) -> Iterator[None]:
    """An interrupt inside of the block says this, if nothing further inside has said it more exactly. A text that is
    not known before is asked for at the interrupt."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(text if isinstance(text, str) else text()) from error


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turns what can end a command from outside into an error with a message, a remedy and an exit code."""
    try:
        with _interruptible():
            yield
    except KeyboardInterrupt as error:
        text = str(error) or NOTHING
        raise Ended(f"interrupted: {text}", interrupt_code()) from error
    except BrokenPipeError as error:
        text = "nobody reads the output any more; what was finished is kept"
        raise Ended(text, 128 + signal.SIGPIPE) from error
    except (MemoryError, OSError, ImportError, RuntimeError) as error:
        known = explained(error)
        if known is None:
            raise
        raise known from error


def explained(error: BaseException) -> WarpsmithError | None:
    """What to tell the user of an error of the system; None where the fault is ours."""
    for one in _chain(error):
        if isinstance(one, MemoryError):
            return EnvironmentError_(f"out of memory: {MORE_MEMORY}")
        if isinstance(one, OSError) and one.errno in _MACHINE and (one.errno != errno.EBADF or stdout_closed()):
            what, remedy = _MACHINE[one.errno]
            return EnvironmentError_(f"{what}{_where(one)} ({os.strerror(one.errno)}): {remedy}")
    if isinstance(error, OSError) and error.errno in _PLACE and error.filename is not None:
        return UserError(f"cannot use {_name(error.filename)} ({error.strerror}): check the path and its permissions")
    if isinstance(error, ImportError):
        remedy = "install warpsmith anew; if that does not help, raise the limits of this shell (ulimit -a)"
        return EnvironmentError_(f"a part of this installation cannot be loaded ({_line(error)}): {remedy}")
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return EnvironmentError_("no home folder for the cache: set $HOME, or $WARPSMITH_CACHE to a folder")
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return EnvironmentError_(f"no further thread can be started: {MORE_PROCESSES}")
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _where(error: OSError) -> str:
    return f" to write {_name(error.filename)}" if error.filename is not None and error.errno in _NO_ROOM else ""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _name(path: object) -> str:
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def secure_streams() -> None:
    """Before any file is opened: a standard stream that was closed is nowhere, else the next file would take its number
    and get what is printed. Text that a stream's encoding lacks is escaped."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one. A result must not vanish: writing to this stdout fails.
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
            _closed.append(number)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_closed: list[int] = []
"""The standard streams that were closed when the process began."""


def stdout_closed() -> bool:
    """Whether nobody can read a result."""
    return 1 in _closed


def fail(error: WarpsmithError) -> NoReturn:
    """Tells an error and ends the process with its exit code; with --json stdout gets a document as well."""
    with contextlib.suppress(OSError, ValueError):
        # A message may quote a file, a device's name or another process, whose text must not steer the terminal.
        print(printable(str(error) if isinstance(error, Ended) else f"error: {error}"), file=sys.stderr, flush=True)
        _document(str(error), type(error).__name__, error.exit_code)
    if isinstance(error, Ended):
        _code.append(error.exit_code)
    silence_closed_streams()
    sys.exit(error.exit_code)


def fail_usage(message: str) -> NoReturn:
    """Ends the process for words of the command line that were told on stderr already."""
    with contextlib.suppress(OSError, ValueError):
        _document(message, UserError.__name__, UserError.exit_code)
    silence_closed_streams()
    sys.exit(UserError.exit_code)


def _document(message: str, kind: str, exit_code: int) -> None:
    """The error for a program, where it asked for JSON."""
    if "--json" in sys.argv:
        document = {"error": {"message": message, "kind": kind, "exit_code": exit_code}}
        print(jsonlib.dumps(document, indent=2), flush=True)


def silence_closed_streams() -> None:
    """Whoever closed stdout or stderr hears nothing further, also not at the interpreter's own end."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)
