"""Proves the layers of a runner by trying: makes every attempt of `trials` inside it and says what stopped which."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpsmith.kernels.errors import SandboxError, SandboxTimeout, WorkerDied
from warpsmith.sandbox.isolation.policy import Policy
from warpsmith.sandbox.isolation.profile import Isolation, is_on
from warpsmith.sandbox.worker import Worker

_JOB = "warpsmith.sandbox.isolation.trials:attempt"
_MEMORY = 256 << 20
"""What the runner of a trial may hold."""
_MEMORY_TRIAL = "hold memory"
_TRIAL_TOKEN = "WARPSMITH_TRIAL_TOKEN"

STOPPED_BY = {
    "write outside": ("landlock", "user id"),
    "read a secret file": ("landlock", "user id"),
    "connect": ("seccomp", "namespaces"),
    "send a datagram": ("seccomp", "namespaces"),
    "trace the parent": ("seccomp", "landlock", "namespaces"),
    "read the parent's memory": ("seccomp", "landlock", "namespaces"),
    "open the parent's memory": ("landlock", "namespaces"),
    "patch its own code": ("landlock", "user id"),
    "signal the parent": ("namespaces", "landlock"),
    "many processes": ("limits", "pids", "cgroup", "watchdog"),
    "large file": ("limits",),
    "many open files": ("limits",),
    "new filter": ("seccomp",),
    "mount": ("seccomp", "capabilities"),
    "keyring": ("seccomp",),
    "bpf": ("seccomp",),
    "new namespace": ("seccomp",),
    _MEMORY_TRIAL: ("watchdog", "cgroup"),
}
"""Attempt -> the layers of which any stops it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one attempt."""

    name: str
    stopped: bool
    detail: str

    def expected(self, isolation: Isolation) -> bool:
        """Whether some layer that is on ought to stop it."""
        return any(is_on(isolation.layers, layer) for layer in STOPPED_BY.get(self.name, ("limits",)))


@dataclass(frozen=True, slots=True)
class Proof:
    """The profile of a runner and all trials in it."""

    isolation: Isolation
    trials: tuple[Trial, ...]


async def prove(policy: Policy) -> Proof:
    """Starts a worker with this policy and tries everything. EnvironmentError_ where a profile cannot be had."""
    token = secrets.token_hex(8)
    os.environ[_TRIAL_TOKEN] = token
    try:
        worker = Worker(preload=(), policy=policy)
    finally:
        del os.environ[_TRIAL_TOKEN]
    async with worker:
        assert worker.isolation is not None
        with _bait(policy) as payload:
            trials = [await _try(worker, name, payload) for name in STOPPED_BY if name != _MEMORY_TRIAL]
        trials += [await _environment(worker), await _hang(worker), await _crash(worker)]
        isolation = worker.isolation
    async with Worker(preload=(), policy=replace(policy, memory_bytes=_MEMORY)) as worker:
        trials.append(await _try(worker, _MEMORY_TRIAL, {"bytes": 2 * _MEMORY}))
    return Proof(isolation, tuple(trials))


@contextmanager
def _bait(policy: Policy) -> Iterator[dict[str, Any]]:
    """What the attempts are made on: a folder, a secret file, a listening port, memory of this process."""
    memory = ctypes.create_string_buffer(secrets.token_bytes(32))
    with (
        tempfile.TemporaryDirectory(prefix="warpsmith-trial-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        Path(folder).chmod(0o777)
        secret = Path(folder) / "secret"
        secret.write_text(secrets.token_hex(16))
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield {
            "folder": folder, "secret": str(secret), "port": server.getsockname()[1], "pid": os.getpid(),
            "address": ctypes.addressof(memory), "size": len(memory), "most": policy.processes + 400,
            "bytes": policy.file_bytes,
        }  # fmt: skip


def _accept(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


async def _try(worker: Worker, name: str, payload: dict[str, Any]) -> Trial:
    try:
        answer = await worker.call(_JOB, payload | {"name": name}, timeout_s=60.0)
    except WorkerDied as error:
        return Trial(name, stopped=True, detail=f"the process {str(error).partition(':attempt ')[2] or error}")
    except SandboxError as error:
        return Trial(name, stopped=False, detail=str(error))
    return Trial(name, bool(answer["stopped"]), str(answer["detail"]))


async def _environment(worker: Worker) -> Trial:
    names = await worker.call("warpsmith.sandbox.isolation.trials:environment", {}, timeout_s=30.0)
    stopped = _TRIAL_TOKEN not in names
    detail = f"{len(names)} variables, no key or token" if stopped else f"{_TRIAL_TOKEN} was handed over"
    return Trial("secrets in the environment", stopped, detail)


async def _hang(worker: Worker) -> Trial:
    """A job that never ends is killed, and the next one is answered."""
    began = time.monotonic()
    try:
        await worker.call("warpsmith.sandbox.selftest:sleep", 3600, timeout_s=0.5)
    except SandboxTimeout:
        await worker.call("warpsmith.sandbox.selftest:echo", 1, timeout_s=30.0)
        took = time.monotonic() - began - 0.5
        return Trial("endless job", stopped=True, detail=f"killed and replaced in {1000 * took:.0f} ms")
    return Trial("endless job", stopped=False, detail="it came to an end")


async def _crash(worker: Worker) -> Trial:
    """A job that crashes takes nothing with it."""
    try:
        await worker.call("warpsmith.sandbox.selftest:crash", None, timeout_s=30.0)
    except WorkerDied:
        answer = await worker.call("warpsmith.sandbox.selftest:echo", 7, timeout_s=30.0)
        return Trial("crash, then a good job", stopped=answer == 7, detail="the good job was answered")
    return Trial("crash, then a good job", stopped=False, detail="it did not crash")
