"""Runs commands in forks of a process that has imported what they need: `command_mother.py` reads JSON lines.

A request holds the words, the folder, the environment and the files for the streams, or another function than the
command's; the answers are the process id and, once it has ended, the exit code. With `cold` workers are started as
commands of their own start them: from their imports on.
"""

import asyncio
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn, TextIO

from warpsmith.sandbox import stem
from warpsmith.sandbox.stem import imports_kept
from warpsmith.tools.target import Target
from warpsmith.tools.workers import Workers

HEAVY = (
    "torch", "torch.export", "torch._dynamo", "torch._inductor.decomposition", "torch._functorch.aot_autograd",
    "networkx", "langgraph.graph", "langgraph.checkpoint.sqlite.aio", "tree_sitter_cuda", "rich.live",
    "warpsmith.app.cli", "warpsmith.app.optimize", "warpsmith.app.workbench", "warpsmith.tools.judge",
    "warpsmith.app.entry", "warpsmith.app.chat.start",
)  # fmt: skip


def child(request: dict, opened: int) -> NoReturn:
    """The command, as if it had been started by itself. Its streams are open once `opened` is closed."""
    code = 1
    try:
        os.setsid()
        for number, path in enumerate((request.get("stdin", os.devnull), request["stdout"], request["stderr"])):
            # A terminal becomes the one of this session.
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.dup2(handle, number)
            os.close(handle)
        os.close(opened)
        if request["cold"]:
            stem._kept.stems = None  # What is kept there stays whole for the next one.
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", 1 if os.isatty(1) else -1, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, closefd=False)
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None
        os.chdir(request["folder"])
        sys.argv = ["warpsmith", *request["words"]]
        module, _, function = request.get("run", "warpsmith.app.entry:main").partition(":")
        getattr(importlib.import_module(module), function)()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serves until the parent closes standard input."""
    for name in HEAVY:
        importlib.import_module(name)
    requests, answers = os.fdopen(os.dup(0)), os.dup(1)
    for name in (requests.fileno(), answers):
        os.set_inheritable(name, False)
    with imports_kept():
        asyncio.run(worker_imports())
        serve(requests, answers)


async def worker_imports() -> None:
    """Starts a worker and ends it: those of the commands are forks of what it leaves."""
    async with Workers(Target(kind="cpu", arch="sm_90")):
        pass


def serve(requests: TextIO, answers: int) -> None:
    """Runs one command after another."""
    for line in requests:
        heard, opened = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(heard)
            child(json.loads(line), opened)
        os.close(opened)
        os.read(heard, 1)
        os.close(heard)
        os.write(answers, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    # Functions of the tests are named by what they are called there: `support.…`.
    tests = Path(__file__).resolve().parents[1]
    sys.path[:] = [str(tests), *(entry for entry in sys.path if Path(entry or ".").resolve() != tests / "support")]
    main()
