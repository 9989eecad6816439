"""Process host: runs named functions in a child under a deadline; replaces it when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from warpsmith.kernels import errors
from warpsmith.sandbox import process
from warpsmith.sandbox.isolation import cgroup, watch
from warpsmith.sandbox.isolation.folders import OwnFolder
from warpsmith.sandbox.isolation.policy import Policy, memory_limit, requested
from warpsmith.sandbox.isolation.profile import Isolation, shortfall

_START_S = 180.0
"""Importing torch on a machine whose disk is cold."""

CALLS_PER_RUNNER = 500
"""After so many a fresh process takes over: what leaks in libraries stays small. A verdict takes two."""

LOCKS_VARIABLE = "WARPSMITH_LOCKS"
"""Environment variable naming the folder of device locks, which all runs of a machine share."""

_LOOK_S = 0.25
"""Seconds between two looks at the memory of a process that is at work."""

_SCM_CREDENTIALS = 2
_CREDENTIALS = struct.Struct("iII")

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

    def __init__(
        self,
        *,
        preload: Sequence[str] = ("torch",),
        environment: Mapping[str, str] | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`policy` names what jobs read and write besides the system, the interpreter and this package."""
        self._preload = tuple(preload)
        self._environment = scrubbed(os.environ) | dict(environment or {})
        self._policy = policy or Policy()
        self._folder: OwnFolder | None = None
        self._group: cgroup.Group | str = "off: not tried"
        self._calls = 0
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._runner: _Runner | None = None
        self._busy = threading.Lock()
        self._log: deque[bytes] = deque(maxlen=64)
        self.generation = 0
        """How many runners have been started: state kept by jobs is valid within one generation."""
        self.isolation: Isolation | None = None
        """Profile and layers of the newest runner; None before `start`."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def start(self) -> None:
        """Starts the nursery, waits for its imports and forks the first runner; EnvironmentError_ with the end of its
        log if it fails, or where a profile that was asked for cannot be had."""
        if self._nursery is None or self._nursery.poll() is not None:
            # Here, not in a helper thread: a child's death signal fires when the thread that made it ends.
            self._spawn()
            await asyncio.to_thread(self._await_nursery)
            await asyncio.to_thread(self._first_runner)

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

    def renew(self) -> None:
        """Between two jobs: ends a runner that has answered very many calls."""
        if self._calls >= CALLS_PER_RUNNER:
            self.kill()

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
        self._release()

    def _release(self) -> None:
        """Takes away what belonged to a nursery that has ended."""
        if isinstance(self._group, cgroup.Group):
            self._group.remove()
        self._group = "off: not tried"
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def log_tail(self) -> str:
        """The end of what the child wrote to its standard error."""
        return b"".join(self._log).decode(errors="replace")[-2000:].strip()

    def _spawn(self) -> None:
        self._release()
        policy = self._complete_policy()
        environment = self._environment | {"TMPDIR": policy.own[0], LOCKS_VARIABLE: policy.drop[0]}
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "warpsmith.sandbox.process", str(theirs.fileno()), str(os.getpid())]
        self._nursery = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        theirs.close()
        self._control = ours
        threading.Thread(target=self._drain, args=(self._nursery,), daemon=True).start()
        if policy.profile != "bare":
            self._group = cgroup.make(memory_bytes=policy.memory_bytes, processes=policy.processes)
        if isinstance(self._group, cgroup.Group):
            try:
                self._group.add(self._nursery.pid)
            except OSError as error:
                self._group.remove()
                self._group = f"off: {error.strerror}"
        with contextlib.suppress(OSError):
            process.send(ours, {"policy": policy.document(), "modules": list(self._preload)})

    def _complete_policy(self) -> Policy:
        """The policy with the worker's own folders, the profile asked for and a bound on memory."""
        profile = self._policy.profile or requested()
        self._folder = OwnFolder()
        locks = Path(self._environment.get(LOCKS_VARIABLE) or Path(tempfile.gettempdir()) / "warpsmith-locks")
        with contextlib.suppress(OSError):
            locks.mkdir(exist_ok=True)
            locks.chmod(0o1777)
        policy = self._policy
        self._policy = replace(policy, memory_bytes=policy.memory_bytes or memory_limit())
        return replace(
            self._policy, profile=profile, own=(str(self._folder.path), *policy.own),
            drop=(str(locks), *policy.drop),
        )  # fmt: skip

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

    def _first_runner(self) -> None:
        self._runner = self._fork()
        assert self.isolation is not None
        why = shortfall(self._policy.profile or requested(), self.isolation)
        if why is not None:
            self.close()
            raise errors.EnvironmentError_(why)

    def _call(self, function: str, payload: Any, timeout_s: float) -> Any:
        with self._busy:
            if self._runner is not None and self._runner.gone():
                # It ended between two calls: that is nothing the next one did.
                self.kill()
            runner = self._runner = self._runner or self._fork()
            self._calls += 1
            try:
                reply = runner.ask({"call": function, "payload": payload}, timeout_s)
            except TimeoutError as error:
                self.kill()
                raise errors.SandboxTimeout(f"{function} gave no answer within {timeout_s:g} s") from error
            if reply is None:
                self._runner = None
                runner.kill()
                code = None if runner.excess else self._exit_code(runner.inner_pid)
                kind = errors.WorkerKilled if code == -signal.SIGKILL else errors.WorkerDied
                raise kind(f"the process running {function} {runner.excess or f'ended {_ending(code)}'}")
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
        self._calls = 0
        runner = _Runner(int(answer["pid"]), ours, self._policy)
        try:
            found = runner.await_ready()
        except errors.SandboxError as error:
            raise errors.SandboxError(f"{error}: {self.log_tail() or 'no message'}") from None
        layers = {**found["layers"], "cgroup": "on" if isinstance(self._group, cgroup.Group) else self._group}
        layers["watchdog"] = f"on: {self._policy.memory_bytes / 1e9:.1f} GB, {self._policy.processes} processes"
        self.isolation = Isolation(found["profile"], layers)
        return runner

    def _exit_code(self, pid: int) -> int | None:
        """By which signal (negative) or code a runner ended, as its parent (the nursery) saw it."""
        for _ in range(20):
            if self._control is None:
                break
            answer = None
            with contextlib.suppress(OSError):
                self._control.sendall(str(pid).encode())
                answer = process.receive(self._control)
            if answer is None:
                # No candidate runs in the nursery: somebody ended both.
                self.close()
                return -signal.SIGKILL
            if answer.get("code") is not None:
                return int(answer["code"])
            time.sleep(0.05)
        return None


def _ending(code: int | None) -> str:
    if code is None:
        return "without an answer"
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


class _Runner:
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

    def await_ready(self) -> dict[str, Any]:
        """Waits for the first message and gives the isolation in it; the system says who sent it."""
        self._sock.settimeout(_START_S)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            self._read_sender()
            ready = process.receive(self._sock)
        except TimeoutError:
            ready = None
        if ready is None or "isolation" not in ready:
            self.kill()
            raise errors.SandboxError("a forked worker process ended before it was ready")
        isolation: dict[str, Any] = ready["isolation"]
        return isolation

    def _read_sender(self) -> None:
        """Looks at the first bytes without taking them: their sender's id, in this process's namespace."""
        _, control, _, _ = self._sock.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_PEEK)
        for _, kind, data in control:
            if kind == _SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
                self.pid = _CREDENTIALS.unpack_from(data)[0] or self.pid
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)

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

    def kill(self) -> None:
        """Ends the process, its children, and the socket."""
        self._end()
        self._sock.close()

    def _end(self) -> None:
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)


def _as_exception(reply: dict[str, Any]) -> Exception:
    kind = getattr(errors, str(reply["error"]), None)
    if isinstance(kind, type) and issubclass(kind, errors.WarpsmithError):
        found: Exception = kind(reply["message"])
        return found
    text = f"{reply['error']}: {reply['message']}"
    if reply["error"] == "PermissionError":
        text += "; worker processes read only what a problem needs: name other files in $WARPSMITH_READ"
    return RemoteError(text, reply.get("traceback", ""))
