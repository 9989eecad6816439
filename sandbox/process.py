"""The child side of the process host: a nursery that imports once and forks runners, which answer calls.

Started as `python -m warpsmith.sandbox.process CONTROL_FD PARENT_PID`; the first message on the control socket
holds the isolation policy and the modules to import. The nursery never touches the GPU, so a runner that crashed
or hung is replaced by a fork in well under a second. Everything here dies with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from typing import Any, NoReturn

from warpsmith.kernels import jail
from warpsmith.sandbox.isolation.namespaces import bubblewrap
from warpsmith.sandbox.isolation.policy import Policy
from warpsmith.sandbox.isolation.profile import confine_runner, settle

_PR_SET_PDEATHSIG = 1
_HEADER = struct.Struct(">Q")
_MESSAGE = "WARPSMITH_NURSERY"
"""Environment variable by which the first message reaches a nursery that bubblewrap has started anew."""
_MOST_BYTES = 1 << 30
"""A longer message is a broken stream."""
NICE = "WARPSMITH_NICE"
"""Environment variable of a worker: by how much others come before it."""
_retiring = threading.Event()


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Writes one length-prefixed JSON document."""
    data = json.dumps(message).encode()
    sock.sendall(_HEADER.pack(len(data)) + data)


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """Reads one document; None where the other side is gone. Honours the socket's timeout for every
    read."""
    header = _read(sock, _HEADER.size)
    if header is None:
        return None
    (length,) = _HEADER.unpack(header)
    data = _read(sock, length) if length <= _MOST_BYTES else None
    if data is None:
        return None
    message: dict[str, Any] = json.loads(data)
    return message


def retire() -> None:
    """For a job whose process must not serve another one (a poisoned CUDA context, a hung kernel)."""
    _retiring.set()


def _read(sock: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count > 0:
        try:
            part = sock.recv(min(count, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _die_with(parent: int | None) -> None:
    """Asks the kernel to kill this process when its parent ends; ends at once if it has ended already (a parent in
    another pid namespace, None, cannot be asked after; its socket tells)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _watch(sock: socket.socket) -> None:
    """Ends this process group when the other end closes, even while the main thread waits for a kernel."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    """Runs one named function on plain data; what it raises becomes plain data as well."""
    try:
        module, _, function = str(message["call"]).partition(":")
        if not module.startswith("warpsmith."):
            raise ValueError(f"{module} is no module of this package")
        value = getattr(importlib.import_module(module), function)(message["payload"])
        return {"value": value}
    except Exception as error:
        text = str(error) or type(error).__name__
        return {"error": type(error).__name__, "message": text, "traceback": traceback.format_exc(limit=-12)}


def _serve(sock: socket.socket, isolation: dict[str, Any]) -> None:
    """Answers calls until the host closes the socket or a job retires the process."""
    send(sock, {"ready": os.getpid(), "isolation": isolation})
    while (message := receive(sock)) is not None:
        reply = _answer(message)
        reply["retire"] = _retiring.is_set()
        try:
            send(sock, reply)
        except TypeError as error:
            send(sock, {"error": "TypeError", "message": f"the reply is not plain data: {error}"})
        if _retiring.is_set():
            signal.pause()


def _run(sock: socket.socket, parent: int, policy: Policy, settled: dict[str, str]) -> None:
    """The whole life of a runner."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    isolation = confine_runner(policy, settled)
    jail.enter(isolation.profile)
    # After a change of user, which takes the wish back.
    _die_with(parent)
    threading.Thread(target=_watch, args=(sock,), daemon=True).start()
    _serve(sock, isolation.document())


def _import(modules: list[str]) -> None:
    """Imports the modules, those marked `?` if they are there."""
    for name in modules:
        try:
            importlib.import_module(name.removeprefix("?"))
        except ImportError:
            if not name.startswith("?"):
                raise
    # A pass of the collector through all this takes 0.1 s, and in a fork it copies every page.
    gc.freeze()


def _nursery(control: socket.socket, modules: list[str], policy: Policy, settled: dict[str, str]) -> None:
    """Imports the modules, then forks a runner for each socket that the host sends."""
    _import(modules)
    send(control, {"ready": os.getpid()})
    ended: dict[int, int] = {}
    while True:
        request, sockets, _, _ = socket.recv_fds(control, 64, 1)
        if not request:
            return
        _reap(ended)
        if sockets:
            _fork(control, sockets[0], policy, settled)
        else:
            send(control, {"code": ended.get(int(request))})


def _reap(ended: dict[int, int]) -> None:
    """Collects the exit codes of runners that have ended."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        return


def _fork(control: socket.socket, handle: int, policy: Policy, settled: dict[str, str]) -> None:
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        os.close(handle)
        send(control, {"pid": pid})
        return
    try:
        control.close()
        _run(socket.socket(fileno=handle), nursery, policy, settled)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _stem(control: socket.socket) -> None:
    """Imports what nurseries need, then forks one for each control socket that the host sends; see
    `warpsmith.sandbox.stem`."""
    message = receive(control)
    # Whether a module is missing is for the nursery to say.
    with contextlib.suppress(ImportError):
        _import(message["modules"] if message is not None else [])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    stem = os.getpid()
    while True:
        request, handles, _, _ = socket.recv_fds(control, 4, 2)
        wanted = receive(control) if request else None
        if wanted is None:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _begin(handles, wanted, stem)
        for handle in handles:
            os.close(handle)
        send(control, {"pid": pid})


def _begin(handles: list[int], wanted: dict[str, Any], stem: int) -> NoReturn:
    """The whole life of a nursery that was forked: as if it had been started with this environment in this folder."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(handles[1], 2)
        os.close(handles[1])
        os.set_inheritable(handles[0], True)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        tempfile.tempdir = None
        os.chdir(wanted["folder"])
        main([str(handles[0]), str(stem)])
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def main(arguments: list[str]) -> None:
    """Entry point of the nursery, and of its stem."""
    _die_with(int(arguments[1]) or None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[0]))
    if arguments[2:] == ["stem"]:
        _stem(control)
        return
    os.nice(int(os.environ.pop(NICE, "0")))
    wrapped = os.environ.pop(_MESSAGE, None)
    message = json.loads(wrapped) if wrapped else receive(control)
    if message is None:
        return
    policy = Policy.of(message["policy"])
    if not wrapped and policy.profile != "bare" and (command := bubblewrap()) is not None:
        os.environ[_MESSAGE] = json.dumps(message)
        os.execv(command[0], [*command, sys.executable, "-P", "-m", "warpsmith.sandbox.process", arguments[0], "0"])
    policy, settled = settle(policy, wrapped=wrapped is not None)
    _nursery(control, message["modules"], policy, settled)


if __name__ == "__main__":
    # Jobs import this module by its name, and must find this very instance: `retire` sets its flag.
    sys.modules["warpsmith.sandbox.process"] = sys.modules["__main__"]
    main(sys.argv[1:])
