"""Process host: runs named functions in a child under a deadline; replaces it when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

from warpsmith.kernels import errors
from warpsmith.sandbox import process

_START_S = 180.0
"""Importing torch on a machine whose disk is cold."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS(WORD|WD|PHRASE)|CREDENTIAL|COOKIE|AUTH", re.IGNORECASE)
_KEEP_PYTHON = {"PYTHONPATH", "PYTHONHASHSEED"}


class RemoteError(errors.SandboxError):
    """A job raised something that is not Warpsmith's: a mistake of ours, with the child's traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without keys, tokens and PYTHON* switches; entries of PYTHONPATH made absolute."""
    clean = {
        name: value
        for name, value in environment.items()
        if not _SECRET.search(name) and (not name.startswith("PYTHON") or name in _KEEP_PYTHON)
    }
    if "PYTHONPATH" in clean:
        entries = [os.path.abspath(entry) for entry in clean["PYTHONPATH"].split(os.pathsep) if entry]  # noqa: PTH100
        clean["PYTHONPATH"] = os.pathsep.join(entries)
    return clean


class Worker:
    """A nursery process and its current runner. Use as an async context manager, one call at a time."""

    def __init__(self, *, preload: Sequence[str] = ("torch",), environment: Mapping[str, str] | None = None) -> None:
        self._preload = tuple(preload)
        self._environment = scrubbed(os.environ) | dict(environment or {})
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._runner: _Runner | None = None
        self._busy = threading.Lock()
        self._log: deque[bytes] = deque(maxlen=64)
        self.generation = 0
        """How many runners have been started: state kept by jobs is valid within one generation."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def start(self) -> None:
        """Starts the nursery and waits for its imports; EnvironmentError_ with the end of its log if it
        fails."""
        if self._nursery is None or self._nursery.poll() is not None:
            # Here, not in a helper thread: a child's death signal fires when the thread that made it ends.
            self._spawn()
            await asyncio.to_thread(self._await_nursery)

    async def call(self, function: str, payload: Any, *, timeout_s: float) -> Any:
        """Runs `package.module:function` on plain data. Raises SandboxTimeout or WorkerDied (the next call
        gets a fresh process), errors of the tree as themselves, RemoteError for anything else."""
        await self.start()
        try:
            return await asyncio.to_thread(self._call, function, payload, timeout_s)
        except asyncio.CancelledError:
            self.kill()
            raise

    @property
    def pid(self) -> int | None:
        """The runner's process id, while there is one."""
        return self._runner.pid if self._runner else None

    def kill(self) -> None:
        """Kills the runner and everything it started. The next call forks another."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.kill()

    def close(self) -> None:
        """Ends runner and nursery."""
        self.kill()
        nursery, self._nursery = self._nursery, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if nursery is not None:
            nursery.kill()
            nursery.wait()

    def log_tail(self) -> str:
        """The end of what the child wrote to its standard error."""
        return b"".join(self._log).decode(errors="replace")[-2000:].strip()

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "warpsmith.sandbox.process"]
        command += [str(theirs.fileno()), str(os.getpid()), *self._preload]
        self._nursery = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=self._environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        theirs.close()
        self._control = ours
        threading.Thread(target=self._drain, args=(self._nursery,), daemon=True).start()

    def _drain(self, nursery: subprocess.Popen[bytes]) -> None:
        assert nursery.stderr is not None
        with nursery.stderr as stream:
            while part := os.read(stream.fileno(), 4096):
                self._log.append(part)

    def _await_nursery(self) -> None:
        assert self._control is not None
        self._control.settimeout(_START_S)
        try:
            ready = process.receive(self._control)
        except TimeoutError:
            ready = None
        if ready is None:
            self.close()
            why = self.log_tail() or "no message"
            raise errors.EnvironmentError_(f"the worker process did not start: {why}")

    def _call(self, function: str, payload: Any, timeout_s: float) -> Any:
        with self._busy:
            runner = self._runner = self._runner or self._fork()
            try:
                reply = runner.ask({"call": function, "payload": payload}, timeout_s)
            except TimeoutError as error:
                self.kill()
                raise errors.SandboxTimeout(f"{function} gave no answer within {timeout_s:g} s") from error
            if reply is None:
                self._runner = None
                runner.kill()
                raise errors.WorkerDied(f"the process running {function} ended {self._how_ended(runner.pid)}")
            if reply.get("retire"):
                self.kill()
        if "error" in reply:
            raise _as_exception(reply)
        return reply["value"]

    def _fork(self) -> _Runner:
        assert self._control is not None
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
            answer = process.receive(self._control)
        except OSError:
            answer = None
        theirs.close()
        if answer is None:
            ours.close()
            self.close()
            raise errors.SandboxError(f"the worker process is gone: {self.log_tail() or 'no message'}")
        self.generation += 1
        runner = _Runner(int(answer["pid"]), ours)
        runner.await_ready()
        return runner

    def _how_ended(self, pid: int) -> str:
        """By which signal or code a runner ended, as its parent (the nursery) saw it."""
        if self._control is None:
            return "with its parent"
        code = None
        for _ in range(20):
            with contextlib.suppress(OSError):
                self._control.sendall(str(pid).encode())
                answer = process.receive(self._control)
                code = answer.get("code") if answer else None
            if code is not None:
                break
            time.sleep(0.05)
        if code is None:
            return "without an answer"
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


class _Runner:
    """One forked process and the socket to it."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self._sock = sock

    def await_ready(self) -> None:
        self._sock.settimeout(_START_S)
        try:
            ready = process.receive(self._sock)
        except TimeoutError:
            ready = None
        if ready is None:
            self.kill()
            raise errors.SandboxError("a forked worker process ended before it was ready")

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        self._sock.settimeout(timeout_s)
        try:
            process.send(self._sock, message)
        except (BrokenPipeError, ConnectionError):
            return None
        return process.receive(self._sock)

    def kill(self) -> None:
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)
        self._sock.close()


def _as_exception(reply: dict[str, Any]) -> Exception:
    kind = getattr(errors, str(reply["error"]), None)
    if isinstance(kind, type) and issubclass(kind, errors.WarpsmithError):
        found: Exception = kind(reply["message"])
        return found
    return RemoteError(f"{reply['error']}: {reply['message']}", reply.get("traceback", ""))
