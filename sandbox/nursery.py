"""A process that has imported what jobs need and forks runners: started once, however many workers it serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpsmith.kernels import errors
from warpsmith.sandbox import process, stem
from warpsmith.sandbox.isolation import cgroup
from warpsmith.sandbox.isolation.folders import OwnFolder
from warpsmith.sandbox.isolation.policy import Policy, memory_limit, requested
from warpsmith.sandbox.runner import Runner
from warpsmith.sandbox.spawn import spawn

_START_S = 180.0
"""Importing torch on a machine whose disk is cold."""
_LAST_WORDS_S = 2.0
"""Until a process that has closed its socket has written why."""

LOCKS_VARIABLE = "WARPSMITH_LOCKS"
"""Environment variable naming the folder of device locks, which all runs of a machine share."""

_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""A limit on file sizes would leave bytecode cut short, for every later import to stumble over."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS(WORD|WD|PHRASE)|CREDENTIAL|COOKIE|AUTH", re.IGNORECASE)
_KEEP_PYTHON = {"PYTHONPATH", "PYTHONHASHSEED"}


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


def _open_to_all(folder: Path) -> None:
    """Makes a folder that every user may put locks into. What lies there already and is no folder of ours, a link to
    somewhere else above all, is left as it is."""
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                os.fchmod(handle, 0o1777)
        finally:
            os.close(handle)


class Nursery:
    """Forks runners on demand, all under one policy and in one temporary folder."""

    def __init__(
        self,
        *,
        preload: Sequence[str] = ("torch",),
        environment: Mapping[str, str] | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`policy` names what jobs read and write besides the system, the interpreter and this package."""
        self.policy = policy or Policy()
        self._preload = tuple(preload)
        self._environment = scrubbed(os.environ) | dict(environment or {})
        self._folder: OwnFolder | None = None
        self._group: cgroup.Group | str = "off: not tried"
        self._process: stem.Child | None = None
        self._control: socket.socket | None = None
        self._talk = threading.Lock()
        """Whoever asks waits for the answer: workers ask from threads of their own."""
        self._starting: asyncio.Future[None] | None = None
        self._log: deque[bytes] = deque(maxlen=64)
        self._drainer: threading.Thread | None = None

    def warm(self) -> None:
        """Begins the imports, where the thread keeps them for several nurseries."""
        stem.begin(self._preload, self._environment | _NO_BYTECODE)

    async def start(self) -> None:
        """Starts the process unless it runs, and waits for its imports; EnvironmentError_ with the end of its log if
        it fails."""
        if self._starting is None and (self._process is None or self._process.poll() is not None):
            # Here, not in a helper thread: a child's death signal fires when the thread that made it ends.
            self._spawn()
            self._starting = asyncio.ensure_future(asyncio.to_thread(self._await_ready))
        if (starting := self._starting) is not None:
            try:
                await asyncio.shield(starting)
            finally:
                # Who gives up waiting leaves it to the next one: two starts at once would read each other's answers.
                if starting.done() and self._starting is starting:
                    self._starting = None

    def fork(self) -> tuple[Runner, dict[str, Any]]:
        """A new runner and its isolation; another one where the first was killed from outside before it was ready.
        SandboxError where the process is gone, or a runner does not start."""
        try:
            return self._fork()
        except errors.WorkerKilled:
            return self._fork()

    def _fork(self) -> tuple[Runner, dict[str, Any]]:
        ours, theirs = socket.socketpair()
        # Before the runner can write: what is sent without it does not tell the sender's id.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        answer = self._ask(b"fork", theirs)
        theirs.close()
        if answer is None:
            ours.close()
            self._hear_last_words()
            self.close()
            raise errors.SandboxError(f"the worker process is gone: {self.log_tail() or 'no message'}")
        runner = Runner(int(answer["pid"]), ours, self.policy)
        try:
            found = runner.await_ready()
        except errors.SandboxError as error:
            raise self._not_ready(runner, error) from None
        layers = {**found["layers"], "cgroup": "on" if isinstance(self._group, cgroup.Group) else self._group}
        layers["watchdog"] = f"on: {self.policy.memory_bytes / 1e9:.1f} GB, {self.policy.processes} processes"
        return runner, {"profile": found["profile"], "layers": layers}

    def _not_ready(self, runner: Runner, error: errors.SandboxError) -> errors.SandboxError:
        """What came of a runner that is not ready; asked after before we end it, as that is a SIGKILL too."""
        code = self.exit_code(runner) if isinstance(error, errors.WorkerDied) else None
        runner.kill()
        kind = errors.WorkerKilled if code == -signal.SIGKILL else errors.SandboxError
        return kind(f"{error}: {self.log_tail() or 'no message'}")

    def exit_code(self, runner: Runner) -> int | None:
        """By which signal (negative) or code a runner ended; None where that is not known."""
        for _ in range(20):
            if self._control is None:
                break
            answer = self._ask(str(runner.inner_pid).encode(), None)
            if answer is None:
                # No candidate runs in this process: somebody ended both.
                self.close()
                return -signal.SIGKILL
            if answer.get("code") is not None:
                return int(answer["code"])
            time.sleep(0.05)
        return None

    def close(self) -> None:
        """Ends the process, and with it every runner."""
        ended, self._process = self._process, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if ended is not None:
            ended.kill()
            ended.wait()
        self._release()

    def log_tail(self) -> str:
        """The end of what the child wrote to its standard error."""
        return b"".join(self._log).decode(errors="replace")[-2000:].strip()

    def _hear_last_words(self) -> None:
        """What a process that goes is still writing; not for long, as one that hangs writes nothing."""
        if self._drainer is not None:
            self._drainer.join(_LAST_WORDS_S)

    def _release(self) -> None:
        """Takes away what belonged to a process that has ended."""
        if isinstance(self._group, cgroup.Group):
            self._group.remove()
        self._group = "off: not tried"
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _ask(self, request: bytes, handle: socket.socket | None) -> dict[str, Any] | None:
        """One question; None where there is nobody to answer it."""
        with self._talk:
            if self._control is None:
                return None
            try:
                if handle is not None:
                    socket.send_fds(self._control, [request], [handle.fileno()])
                else:
                    self._control.sendall(request)
                return process.receive(self._control)
            except OSError:
                return None

    def _spawn(self) -> None:
        self._release()
        policy = self._complete_policy()
        environment = self._environment | _NO_BYTECODE | {"TMPDIR": policy.own[0], LOCKS_VARIABLE: policy.drop[0]}
        self._process, control = self._started(environment)
        self._control = control
        if policy.profile != "bare":
            self._group = cgroup.make(memory_bytes=policy.memory_bytes, processes=policy.processes)
        if isinstance(self._group, cgroup.Group):
            try:
                self._group.add(self._process.pid)
            except OSError as error:
                self._group.remove()
                self._group = f"off: {error.strerror}"
        with contextlib.suppress(OSError):
            process.send(control, {"policy": policy.document(), "modules": list(self._preload)})

    def _started(self, environment: Mapping[str, str]) -> tuple[stem.Child, socket.socket]:
        """The process, a fork where stems are kept, and the socket by which it is asked; its log is drained."""
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        child: stem.Child | None = stem.fork(self._preload, environment, theirs, writer)
        if child is None:
            command = [sys.executable, "-P", "-m", "warpsmith.sandbox.process", str(theirs.fileno()), str(os.getpid())]
            child = spawn(
                command, pass_fds=[theirs.fileno()], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writer,
            )  # fmt: skip
        theirs.close()
        os.close(writer)
        self._drainer = threading.Thread(target=self._drain, args=(reader,), daemon=True)
        self._drainer.start()
        return child, ours

    def _complete_policy(self) -> Policy:
        """The policy with a folder of its own, the profile asked for and a bound on memory."""
        profile = self.policy.profile or requested()
        self._folder = OwnFolder()
        locks = Path(self._environment.get(LOCKS_VARIABLE) or Path(tempfile.gettempdir()) / "warpsmith-locks")
        _open_to_all(locks)
        policy = self.policy
        self.policy = replace(policy, memory_bytes=policy.memory_bytes or memory_limit())
        return replace(
            self.policy, profile=profile, own=(str(self._folder.path), *policy.own),
            drop=(str(locks), *policy.drop),
        )  # fmt: skip

    def _drain(self, reader: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as stream:
            while part := stream.read(4096):
                self._log.append(part)

    def _await_ready(self) -> None:
        assert self._control is not None
        self._control.settimeout(_START_S)
        ready = None
        with contextlib.suppress(TimeoutError):
            ready = process.receive(self._control)
        if ready is None:
            self._hear_last_words()
            self.close()
            why = self.log_tail() or "no message"
            raise errors.EnvironmentError_(f"the worker process did not start: {why}")
