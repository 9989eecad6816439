"""A compiler process: reads framed requests on standard input, runs NVRTC, answers on standard output.

Started by `compile_client.CompileWorker` as a plain interpreter, so it imports neither torch nor pydantic. It dies with
its parent, holds no secrets (the parent makes its environment), reads only what a compile needs, writes no file, and
has no network, no children and no signals.
"""

from __future__ import annotations

import base64
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from warpsmith.kernels.errors import WarpsmithError
from warpsmith.sandbox.frames import FrameClosed, read_frame, write_frame
from warpsmith.sandbox.isolation import limits
from warpsmith.sandbox.isolation.policy import requested
from warpsmith.sandbox.isolation.profile import confine_compiler
from warpsmith.sandbox.nvrtc import Nvrtc

LOG_LIMIT = 256 << 10
"""Characters of log that travel: half from the head (first errors), half from the tail (what ptxas says)."""

MEMORY_LIMIT = 4 << 30
"""Bytes of address space: ordinary compiles need under 0.5 GB, runaway template expansion any amount."""

_NICE = 5
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serve until the parent closes standard input. Arguments: parent's process id, NVRTC, header folders."""
    parent, library = int(arguments[0]), Path(arguments[1])
    folders = tuple(Path(folder) for folder in arguments[2:])
    _die_with(parent)
    # Who has a GPU to itself must not wait for a core meanwhile.
    os.nice(_NICE)
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever the compiler prints must not land between the frames
    try:
        profile = requested()
        nvrtc = Nvrtc(library)
    except WarpsmithError as error:
        write_frame(answers, {"error": str(error)})
        return error.exit_code
    readable = (library.parent, *folders, *_runtime_folders())
    layers = confine_compiler(readable, memory_bytes=MEMORY_LIMIT, bare=profile == "bare")
    write_frame(answers, {"version": nvrtc.version, "layers": layers})
    includes = tuple(f"--include-path={folder}" for folder in folders)
    while True:
        try:
            request = read_frame(0)
        except FrameClosed:
            return 0
        write_frame(answers, _answer(nvrtc, includes, request))


def _answer(nvrtc: Nvrtc, includes: tuple[str, ...], request: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    limits.allow_cpu(request["cpu_s"])
    done = nvrtc.compile(request["source"], options=(*request["options"], *includes))
    return {
        "code": done.code,
        "description": nvrtc.describe(done.code),
        "log": _trimmed(done.log),
        "ptx": done.ptx,
        "cubin": base64.b64encode(done.cubin).decode(),
        "seconds": time.perf_counter() - began,
    }


def _trimmed(log: str) -> str:
    if len(log) <= LOG_LIMIT:
        return log
    half = LOG_LIMIT // 2
    return f"{log[:half]}\n... {len(log) - LOG_LIMIT} characters left out ...\n{log[-half:]}"


def _die_with(parent: int) -> None:
    """Be killed when the parent ends, even if another process still holds our pipe open."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        sys.exit(0)


def _runtime_folders() -> tuple[Path, ...]:
    """What the interpreter and the C library may still open lazily."""
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/dev/null", "/dev/urandom", "/proc/self")
    return tuple(Path(folder) for folder in (*system, sys.base_prefix))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
