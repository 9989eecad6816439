"""Framed JSON on pipes between a parent and its worker processes: a four-byte length, then a UTF-8 object."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

MAX_FRAME = 256 << 20
"""Bytes. A longer frame is a broken stream, not a message."""

_HEADER = struct.Struct("<I")


class FrameClosed(Exception):
    """The other end closed the pipe (in the middle of a frame or before one)."""


class FrameTimeout(Exception):
    """The deadline passed before the frame was through."""


def write_frame(fd: int, message: dict[str, Any], *, deadline: float | None = None) -> None:
    """Write one message to `fd`; `deadline` is a `time.monotonic()` value.

    Raises FrameClosed or FrameTimeout. With a deadline `fd` must not block, else a write may overrun it.
    """
    body = json.dumps(message).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    data = memoryview(_HEADER.pack(len(body)) + body)
    while data:
        _wait(fd, select.POLLOUT, deadline)
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            continue
        except (BrokenPipeError, ConnectionResetError) as error:
            raise FrameClosed from error


def read_frame(fd: int, *, deadline: float | None = None) -> dict[str, Any]:
    """Read one message from `fd`. Raises FrameClosed at end of file and FrameTimeout at the deadline."""
    (length,) = _HEADER.unpack(_read_exactly(fd, _HEADER.size, deadline))
    if length > MAX_FRAME:
        raise FrameClosed(f"a frame of {length} bytes is over the limit")
    message = json.loads(_read_exactly(fd, length, deadline))
    if not isinstance(message, dict):
        raise FrameClosed("a frame holds something that is not an object")
    return message


def _read_exactly(fd: int, count: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        _wait(fd, select.POLLIN, deadline)
        try:
            part = os.read(fd, min(count - len(parts), 1 << 20))
        except BlockingIOError:
            continue
        if not part:
            raise FrameClosed
        parts += part
    return bytes(parts)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    """Return when `fd` is ready for `event`, also when the other end hung up (the next call then says so)."""
    poll = select.poll()
    poll.register(fd, event)
    if deadline is None:
        poll.poll()
        return
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000.0):
        raise FrameTimeout
