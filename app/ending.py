"""How a command ends that could not finish: interrupts and a machine that gives out, as one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import types
from collections.abc import Iterator

from warpsmith.kernels.errors import EnvironmentError_, UserError, WarpsmithError

FREE_SPACE = "free some space, or choose a folder on another disk, and run the command again"
MORE_FILES = "raise the limit (ulimit -n 1024 or more) and run the command again"
MORE_PROCESSES = "raise the limit (ulimit -u 1024 or more) or end other programs, and run the command again"
MORE_MEMORY = "raise the limit (ulimit -v unlimited) or end other programs, and run the command again"

_MACHINE = {
    errno.ENOSPC: ("no room left", FREE_SPACE), errno.EDQUOT: ("no room left", FREE_SPACE),
    errno.EFBIG: ("no room left", FREE_SPACE),
    errno.EMFILE: ("too many open files", MORE_FILES), errno.ENFILE: ("too many open files", MORE_FILES),
    errno.EAGAIN: ("no further process or thread can be started", MORE_PROCESSES),
    errno.ENOMEM: ("out of memory", MORE_MEMORY),
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


_received: list[int] = []
"""The signals that arrived, the first of them first."""


def listen() -> None:
    """SIGTERM ends a command as Ctrl-C does, with its own exit code."""
    signal.signal(signal.SIGTERM, _as_interrupt)


def _as_interrupt(number: int, frame: types.FrameType | None) -> None:
    _received.append(number)
    # asyncio.run has a handler of its own for SIGINT, which lets the tasks clean up.
    signal.raise_signal(signal.SIGINT)


def interrupt_code(name: str | None = None) -> int:
    """130, or 143 for SIGTERM. `name`: the signal that was handled; None: the first that `listen` saw."""
    if name is not None:
        return 128 + (signal.SIGTERM if name == "SIGTERM" else signal.SIGINT)
    return 128 + (_received[0] if _received else signal.SIGINT)


@contextlib.contextmanager
def interrupt_says(text: str) -> Iterator[None]:
    """An interrupt inside of the block says this, if nothing further inside has said it more exactly."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(text) from error


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turns what can end a command from outside into an error with a message, a remedy and an exit code."""
    try:
        yield
    except KeyboardInterrupt as error:
        text = str(error) or "nothing was written; run the command again"
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
        if isinstance(one, OSError) and one.errno in _MACHINE:
            what, remedy = _MACHINE[one.errno]
            return EnvironmentError_(f"{what}{_where(one)} ({os.strerror(one.errno)}): {remedy}")
    if isinstance(error, OSError) and error.errno in _PLACE and error.filename is not None:
        return UserError(f"cannot use {_name(error.filename)} ({error.strerror}): check the path and its permissions")
    if isinstance(error, ImportError):
        remedy = "install warpsmith anew; if that does not help, raise the limits of this shell (ulimit -a)"
        return EnvironmentError_(f"a part of this installation cannot be loaded ({_line(error)}): {remedy}")
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
            # The lowest free number is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def silence_closed_streams() -> None:
    """Whoever closed stdout or stderr hears nothing further, also not at the interpreter's own end."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)
