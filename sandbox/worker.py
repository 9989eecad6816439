"""Process host: runs named functions in a child under a deadline; replaces it when it dies or hangs."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from warpsmith.kernels import errors
from warpsmith.sandbox.isolation.policy import Policy, requested
from warpsmith.sandbox.isolation.profile import Isolation, shortfall
from warpsmith.sandbox.nursery import Nursery
from warpsmith.sandbox.runner import Runner

CALLS_PER_RUNNER = 500
"""After so many a fresh process takes over: what leaks in libraries stays small. A verdict takes two."""


class RemoteError(errors.SandboxError):
    """A job raised something that is not Warpsmith's: a mistake of ours, with the child's traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


class Worker:
    """A nursery and one runner of it at a time. Use as an async context manager, one call at a time."""

    def __init__(
        self,
        *,
        preload: Sequence[str] = ("torch",),
        environment: Mapping[str, str] | None = None,
        policy: Policy | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        """A `nursery` that is given serves others as well and is left running; else the worker makes one of its own
        with `preload`, `environment` and `policy`."""
        self._nursery = nursery or Nursery(preload=preload, environment=environment, policy=policy)
        self._shared = nursery is not None
        self._runner: Runner | None = None
        self._calls = 0
        self._busy = threading.Lock()
        self.generation = 0
        """How many runners have been started: state kept by jobs is valid within one generation."""
        self.spent: dict[str, list[float]] = {}
        """Seconds of each call by function, what it waited for included."""
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
        await self._nursery.start()
        if self.isolation is None:
            await asyncio.to_thread(self._first_runner)

    async def call(self, function: str, payload: Any, *, timeout_s: float) -> Any:
        """Runs `package.module:function` on plain data. Raises SandboxTimeout or WorkerDied (the next call
        gets a fresh process), errors of the tree as themselves, RemoteError for anything else."""
        await self.start()
        began = time.monotonic()
        try:
            return await asyncio.to_thread(self._call, function, payload, timeout_s)
        except asyncio.CancelledError:
            # The thread still waits on the runner's socket; it clears up when the process has ended.
            if self._runner is not None:
                self._runner.stop()
            raise
        finally:
            self.spent.setdefault(function.rpartition(".")[2], []).append(time.monotonic() - began)

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
        """Ends the runner, and the nursery where it is the worker's own."""
        self.kill()
        if not self._shared:
            self._nursery.close()

    def log_tail(self) -> str:
        """The end of what the children wrote to their standard error."""
        return self._nursery.log_tail()

    def _first_runner(self) -> None:
        self._runner = self._fork()
        assert self.isolation is not None
        why = shortfall(self._nursery.policy.profile or requested(), self.isolation)
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
                raise self._died(runner, function)
            if reply.get("retire"):
                self.kill()
        if "error" in reply:
            raise _as_exception(reply)
        return reply["value"]

    def _died(self, runner: Runner, function: str) -> errors.WorkerDied:
        code = None if runner.excess else self._nursery.exit_code(runner)
        kind = errors.WorkerKilled if code == -signal.SIGKILL else errors.WorkerDied
        if runner.excess:
            kind = errors.WorkerExceeded
        return kind(f"the process running {function} {runner.excess or f'ended {_ending(code)}'}")

    def _fork(self) -> Runner:
        runner, found = self._nursery.fork()
        self.generation += 1
        self._calls = 0
        self.isolation = Isolation(found["profile"], found["layers"])
        return runner


def _ending(code: int | None) -> str:
    if code is None:
        return "without an answer"
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def _as_exception(reply: dict[str, Any]) -> Exception:
    kind = getattr(errors, str(reply["error"]), None)
    if isinstance(kind, type) and issubclass(kind, errors.WarpsmithError):
        found: Exception = kind(reply["message"])
        return found
    text = f"{reply['error']}: {reply['message']}"
    if reply["error"] == "PermissionError":
        text += "; worker processes read only what a problem needs: name other files in $WARPSMITH_READ"
    return RemoteError(text, reply.get("traceback", ""))
