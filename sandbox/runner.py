"""One forked process that answers calls, as its host sees it: the socket to it, its limits, its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import time
from typing import Any

from warpsmith.kernels import errors
from warpsmith.sandbox import process
from warpsmith.sandbox.isolation import watch
from warpsmith.sandbox.isolation.policy import Policy

_READY_S = 180.0
"""A fork that confines itself takes milliseconds, on a machine that is out of breath much longer."""
_LOOK_S = 0.25
"""Seconds between two looks at the memory of a process that is at work."""
_SCM_CREDENTIALS = 2
_CREDENTIALS = struct.Struct("iII")
_PROCESS_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9)."""


class Runner:
    """One forked process and the socket to it."""

    def __init__(self, inner_pid: int, sock: socket.socket, policy: Policy) -> None:
        self.inner_pid = inner_pid
        """Process id as the nursery sees it."""
        self.pid = inner_pid
        """The same as this process sees it; known when the runner is ready."""
        self.excess: str | None = None
        """Why it was stopped for what it took."""
        self._sock = sock
        self._policy = policy
        self._handle: int | None = None
        """A pidfd: it stands for this process even when its number has gone to another one."""
        self._ending = threading.Lock()

    def await_ready(self) -> dict[str, Any]:
        """Waits for the first message and gives the isolation in it; the system says who sent it. WorkerDied where the
        process ended before that, SandboxError where it says nothing; `kill` is still to be called."""
        self._sock.settimeout(_READY_S)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            self._read_sender()
            ready = process.receive(self._sock)
        except TimeoutError:
            raise errors.SandboxError(f"a forked worker process was not ready after {_READY_S:g} s") from None
        except (ProcessLookupError, ConnectionError):
            ready = None
        if ready is None or "isolation" not in ready:
            raise errors.WorkerDied("a forked worker process ended before it was ready")
        isolation: dict[str, Any] = ready["isolation"]
        return isolation

    def _read_sender(self) -> None:
        """Looks at the first bytes without taking them: their sender's id, in this process's namespace.
        ProcessLookupError where it has ended."""
        first, control, _, _ = self._sock.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_PEEK)
        if not first:
            raise ProcessLookupError
        for _, kind, data in control:
            if kind == _SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
                self.pid = _CREDENTIALS.unpack_from(data)[0] or self.pid
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        handle = os.pidfd_open(self.pid)
        if self.gone():
            # It ended, and its number may already have been somebody else's when it was opened.
            os.close(handle)
            raise ProcessLookupError
        self._handle = handle
        self._sock.settimeout(_READY_S)

    def gone(self) -> bool:
        """Whether the other end has closed while nothing was asked of it."""
        self._sock.setblocking(False)
        try:
            return self._sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """The reply, or None if the process ended (`excess` says whether we ended it). Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        self._sock.settimeout(timeout_s)
        try:
            process.send(self._sock, message)
        except (BrokenPipeError, ConnectionError):
            return None
        self._wait(deadline)
        self._sock.settimeout(max(0.001, deadline - time.monotonic()))
        return process.receive(self._sock)

    def _wait(self, deadline: float) -> None:
        """Returns when there is something to read; meanwhile looks at what the process and its children take."""
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        while not poll.poll(1000 * min(_LOOK_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() > deadline:
                raise TimeoutError
            bounds = self._policy
            why = watch.excess(self.pid, memory_bytes=bounds.memory_bytes, processes=bounds.processes)
            if why is not None:
                self.excess = f"was stopped: {why}"
                self._end()

    def stop(self) -> None:
        """Ends the process and its children. Whoever waits for an answer in another thread gets None: the socket stays
        open, for its number could be somebody else's before the wait is over."""
        self._end()

    def kill(self) -> None:
        """Ends the process, its children, and the socket. One that was never ready ends when its socket closes."""
        self._end()
        with self._ending:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None
        self._sock.close()

    def _end(self) -> None:
        with self._ending:
            if self._handle is None:
                return
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL, None, _PROCESS_GROUP)
            except (ProcessLookupError, PermissionError):
                return
            except OSError:
                self._end_on_older_kernels(self._handle)

    def _end_on_older_kernels(self, handle: int) -> None:
        """The group first, while its leader, dead or alive, still holds the number."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, 0)
            os.killpg(self.pid, signal.SIGKILL)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
