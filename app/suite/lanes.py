"""The lanes as the suite's process sees them: start, jobs one at a time, stop, and what a dead one leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from warpsmith.app.suite.wire import Job, Ready, Reply, Setup, Told
from warpsmith.kernels.errors import EnvironmentError_, SandboxError, UserError
from warpsmith.sandbox.spawn import spawn
from warpsmith.tools.lease import LANES as LANES_VARIABLE
from warpsmith.tools.lease import VARIABLE as SEATS_VARIABLE
from warpsmith.tools.workers import COMPILE_THREADS

Tell = Callable[[Told], None]
_START_S = 300.0
"""Importing torch in many processes of a machine whose disk is cold."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables: how many threads libraries take for one call."""
_LINE_BYTES = 1 << 24
_TAIL = 1500


class LaneDied(SandboxError):
    """The lane's process ended, or was ended, before it answered."""


class Lane(Protocol):
    """Something that does one job at a time."""

    @property
    def gpu(self) -> int | None:
        """Which GPU, in the order that CUDA_VISIBLE_DEVICES leaves; None without one."""

    async def start(self) -> Ready:
        """Starts it unless it runs. UserError or EnvironmentError_ where the machine cannot be used as asked."""

    async def do(self, job: Job, tell: Tell) -> Reply:
        """The reply to a job. LaneDied where there is none."""

    def drain(self) -> None:
        """Asks for an end after the step under way; what was done is kept."""

    def kill(self) -> None:
        """Ends it at once."""


class LaneProcess:
    """A lane in a process of its own."""

    def __init__(self, number: int, setup: Setup, log: Path, *, gpu: int | None = None) -> None:
        """`log` gets what the process writes to its standard error."""
        self.number = number
        self.gpu = gpu
        self._setup = setup
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._draining = False

    async def start(self) -> Ready:
        """As in `Lane`."""
        if self._process is not None:
            self.kill()
        ours, theirs = socket.socketpair()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = spawn(
                [sys.executable, "-P", "-m", "warpsmith.app.suite.lane", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(),
            )  # fmt: skip
        theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES)
        await self._send(self._setup.model_dump_json())
        try:
            answer = await asyncio.wait_for(self._line(), _START_S)
        except TimeoutError as error:
            self.kill()
            raise EnvironmentError_(f"a process of the suite did not start within {_START_S:g} s") from error
        except LaneDied as error:
            raise EnvironmentError_(f"a process of the suite did not start: {error}") from error
        if "refused" in answer:
            self.kill()
            kind = UserError if answer["refused"]["user"] else EnvironmentError_
            raise kind(answer["refused"]["message"])
        return Ready.model_validate(answer["ready"])

    async def do(self, job: Job, tell: Tell) -> Reply:
        """As in `Lane`."""
        await self._send(job.model_dump_json())
        while True:
            answer = await self._line()
            if "told" in answer:
                tell(Told.model_validate(answer["told"]))
            elif "reply" in answer:
                return Reply.model_validate(answer["reply"])

    def drain(self) -> None:
        """As in `Lane`."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As in `Lane`. Workers and compilers die with the process that started them."""
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self.gpu is not None:
            visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
            environment["CUDA_VISIBLE_DEVICES"] = visible[self.gpu] if self.gpu < len(visible) else str(self.gpu)
        environment[SEATS_VARIABLE] = str(self._setup.seats)
        environment[LANES_VARIABLE] = str(self._setup.lanes)
        # As many threads as there are cores in each lane would wait for one another, spinning.
        for name in _THREADS:
            environment.setdefault(name, "1")
        # Lanes compile side by side: a pool of compilers in each would cost more than it saves.
        environment.setdefault(COMPILE_THREADS, "1")
        # What the lane prints is read when it has died.
        environment["PYTHONUNBUFFERED"] = "1"
        return environment

    async def _send(self, text: str) -> None:
        if self._writer is None:
            raise LaneDied("the process is gone")
        try:
            self._writer.write(text.encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise LaneDied(self._end()) from error

    async def _line(self) -> Mapping[str, Any]:
        assert self._reader is not None
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise LaneDied(self._end()) from error
        if not line.endswith(b"\n"):
            raise LaneDied(self._end())
        document: Mapping[str, Any] = json.loads(line)
        return document

    def _end(self) -> str:
        """How the process ended, with the last of what it wrote."""
        code = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=5)
        how = (
            "went silent" if code is None else f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        )
        lines = self._log.read_bytes()[-_TAIL:].decode(errors="replace").strip().splitlines()
        return f"{how}; {lines[-1][:300]}" if lines else how
